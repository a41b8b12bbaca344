import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

export interface NixResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Whether the real Nix is on this machine. */
export function hasNix(): boolean {
  return spawnSync('nix-store', ['--version']).status === 0;
}

/** The real Nix over a store of its own below `dir`. */
export class NixClient {
  readonly #dir: string;
  readonly #env: NodeJS.ProcessEnv;

  constructor(dir: string) {
    this.#dir = dir;
    this.#env = {
      PATH: process.env.PATH,
      HOME: join(dir, 'home'),
      NIX_STORE_DIR: join(dir, 'store'),
      NIX_STATE_DIR: join(dir, 'state'),
      NIX_LOG_DIR: join(dir, 'log'),
      NIX_CONF_DIR: join(dir, 'etc'),
      NIX_DAEMON_SOCKET_PATH: join(dir, 'socket'),
    };
    for (const name of ['home', 'etc']) mkdirSync(join(dir, name), { recursive: true });
    const settings = ['build-users-group =', 'sandbox = false', 'substituters =', 'require-sigs = true'];
    settings.push('experimental-features = nix-command', 'substitute = true');
    writeFileSync(join(dir, 'etc', 'nix.conf'), `${settings.join('\n')}\n`);
  }

  /** Substitutes from `url` and trusts `publicKey` from now on. */
  use(url: string, publicKey: string): void {
    this.#env.NIX_CONFIG = `substituters = ${url}\ntrusted-public-keys = ${publicKey}\n`;
  }

  run(command: string, ...args: string[]): Promise<NixResult> {
    return new Promise((resolve) => {
      execFile(
        command,
        args,
        { env: this.#env, cwd: this.#dir, timeout: 60_000 },
        (error, stdout, stderr) => {
          const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
          resolve({ code, stdout: stdout.trim(), stderr });
        },
      );
    });
  }

  /** As {@link run}, for a command that must succeed; its output. */
  async must(command: string, ...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.run(command, ...args);
    if (code !== 0) throw new Error(`${command} ${args.join(' ')} exited with ${code}:\n${stderr}`);
    return stdout;
  }

  /** Empties the store, and what Nix remembers of caches. */
  clear(): void {
    const store = join(this.#dir, 'store');
    spawnSync('chmod', ['-R', 'u+w', store]);
    for (const name of ['store', 'state', 'home']) {
      rmSync(join(this.#dir, name), { recursive: true, force: true });
    }
    mkdirSync(join(this.#dir, 'home'));
  }

  /** The names of the paths that are valid and no derivations. */
  paths(): string[] {
    const hidden = /^\.|\.drv$|\.lock$/;
    return readdirSync(join(this.#dir, 'store')).filter((name) => !hidden.test(name));
  }
}
