declare const brand: unique symbol;

/** A `Base` that went through the parser of `Name` and can be trusted from there on. */
export type Brand<Base, Name extends string> = Base & { readonly [brand]: Name };
