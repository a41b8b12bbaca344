import { readFileSync } from 'node:fs';
import { parse } from 'smol-toml';
import Type, { type Static } from 'typebox';
import { Compile } from 'typebox/compile';
import { BcacheError } from '../nix/errors.ts';

const closed = { additionalProperties: false } as const;
const Port = Type.Integer({ minimum: 0, maximum: 65_535 });

/** The one configuration file: TOML with a table for each role. */
const Config = Type.Object(
  {
    server: Type.Optional(
      Type.Object(
        {
          state_dir: Type.Optional(Type.String()),
          host: Type.Optional(Type.String()),
          port: Type.Optional(Port),
          domain: Type.Optional(Type.String()),
        },
        closed,
      ),
    ),
    agent: Type.Optional(
      Type.Object(
        {
          state_dir: Type.Optional(Type.String()),
          host: Type.Optional(Type.String()),
          port: Type.Optional(Port),
          /** Bytes that kept NARs may take. */
          cache_bytes: Type.Optional(Type.Integer({ minimum: 0 })),
          upstream: Type.Optional(
            Type.Array(
              Type.Object(
                {
                  url: Type.String(),
                  public_keys: Type.Array(Type.String()),
                  priority: Type.Optional(Type.Integer()),
                },
                closed,
              ),
            ),
          ),
        },
        closed,
      ),
    ),
  },
  closed,
);
export type Config = Static<typeof Config>;

const checker = Compile(Config);

/** @throws BcacheError `bad_config` with the place that is wrong */
export function readConfig(file: string | undefined): Config {
  if (file === undefined) return {};
  let value: unknown;
  try {
    value = parse(readFileSync(file, 'utf8'));
  } catch (cause) {
    throw new BcacheError(
      'bad_config',
      `cannot read the configuration ${file}: ${(cause as Error).message}`,
      {
        cause,
      },
    );
  }
  if (checker.Check(value)) return value;
  const [first] = checker.Errors(value);
  const place = first?.instancePath.slice(1).replaceAll('/', '.') || 'the file';
  throw new BcacheError(
    'bad_config',
    `the configuration ${file} is wrong: ${place} ${first?.message ?? ''}`,
    {
      hint: "The tables are [server], [agent] and [[agent.upstream]]; 'bcache serve --help' and 'bcache agent --help' name what goes in.",
    },
  );
}
