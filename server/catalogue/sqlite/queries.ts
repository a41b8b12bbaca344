import type { Database, Statement } from 'better-sqlite3';
import {
  type Compilable,
  DummyDriver,
  Kysely,
  SqliteAdapter,
  SqliteIntrospector,
  SqliteQueryCompiler,
} from 'kysely';
import type { Tables } from './schema.ts';

/**
 * Builds typed SQL; it runs nothing. Statements run through {@link Queries}, synchronously, so that a
 * transaction never waits for the event loop while it is open.
 */
export const sql: Kysely<Tables> = new Kysely<Tables>({
  dialect: {
    createAdapter: () => new SqliteAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new SqliteIntrospector(db),
    createQueryCompiler: () => new SqliteQueryCompiler(),
  },
});

/** Runs built queries on one connection and keeps their prepared statements by their text. */
export class Queries {
  readonly #db: Database;
  readonly #statements = new Map<string, Statement<unknown[]>>();

  constructor(db: Database) {
    this.#db = db;
  }

  all<Row>(query: Compilable<Row>): Row[] {
    const { sql: text, parameters } = query.compile();
    return this.#prepare(text).all(...parameters) as Row[];
  }

  first<Row>(query: Compilable<Row>): Row | undefined {
    const { sql: text, parameters } = query.compile();
    return this.#prepare(text).get(...parameters) as Row | undefined;
  }

  run(query: Compilable): { changes: number } {
    const { sql: text, parameters } = query.compile();
    return this.#prepare(text).run(...parameters);
  }

  #prepare(text: string): Statement<unknown[]> {
    let statement = this.#statements.get(text);
    if (statement === undefined) {
      statement = this.#db.prepare(text);
      this.#statements.set(text, statement);
    }
    return statement;
  }
}
