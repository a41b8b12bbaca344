import { type ChildProcess, execFile, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { parseStoreDir, type StoreDir } from '../../nix/store-path.ts';

/** Where tests that need the real Nix can say why they were skipped. */
export const NO_NIX = 'Nix (nix-store, nix-daemon) is not on this machine';

/** Whether the real Nix is on this machine. */
export function nixAvailable(): boolean {
  return ['nix-store', 'nix-daemon'].every((name) => spawnSync(name, ['--version']).status === 0);
}

export interface NixResult {
  /** -1 where a signal or the time limit ended it. */
  readonly code: number;
  /** As UTF-8. */
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Added to the sandbox's own variables. */
  readonly env?: NodeJS.ProcessEnv;
  /** Milliseconds, 60,000 unless given. */
  readonly timeout?: number;
}

interface Teardown {
  teardown(fn: () => unknown): void;
}

export interface SandboxOptions {
  /** Lines to add to nix.conf. */
  readonly settings?: readonly string[];
}

/**
 * A private Nix: a store, database, configuration and home of its own below a temporary directory.
 * Needs no privileges and no daemon. Removed at the teardown of `t`.
 */
export function createNixSandbox(t?: Teardown, options: SandboxOptions = {}): NixSandbox {
  const dir = mkdtempSync(join(tmpdir(), 'nix-'));
  const sandbox = new NixSandbox(dir, join(dir, 'store'), options.settings ?? []);
  t?.teardown(() => sandbox.remove());
  return sandbox;
}

export class NixSandbox {
  readonly dir: string;
  /** The directory that store paths name. */
  readonly storeDir: StoreDir;
  /** The directory that holds the files: {@link storeDir}, but for a second store. */
  readonly realStoreDir: string;
  readonly stateDir: string;
  readonly confDir: string;
  readonly home: string;
  readonly socketPath: string;
  /** For a child process: the sandbox's Nix variables, and PATH. */
  readonly env: NodeJS.ProcessEnv;
  readonly #daemons: NixDaemon[] = [];
  readonly #seconds: NixSandbox[] = [];
  readonly #settings: readonly string[];
  #expressions = 0;

  constructor(dir: string, storeDir: string, settings: readonly string[]) {
    this.dir = dir;
    this.storeDir = parseStoreDir(storeDir);
    this.realStoreDir = join(dir, 'store');
    this.stateDir = join(dir, 'state');
    this.confDir = join(dir, 'etc');
    this.home = join(dir, 'home');
    this.socketPath = join(dir, 'socket');
    this.#settings = settings;
    this.env = {
      PATH: process.env.PATH,
      HOME: this.home,
      XDG_CACHE_HOME: join(this.home, '.cache'),
      NIX_STORE_DIR: this.storeDir,
      NIX_STATE_DIR: this.stateDir,
      NIX_LOG_DIR: join(dir, 'log'),
      NIX_CONF_DIR: this.confDir,
      NIX_DAEMON_SOCKET_PATH: this.socketPath,
    };
    if (this.realStoreDir !== this.storeDir) {
      const log = join(dir, 'log');
      this.env.NIX_REMOTE = `local?real=${this.realStoreDir}&state=${this.stateDir}&log=${log}`;
    }
    for (const made of [this.confDir, this.home, this.realStoreDir]) mkdirSync(made, { recursive: true });
    this.configure();
  }

  /** Writes nix.conf anew with these lines behind the usual ones. A daemon reads it only when it starts. */
  configure(...lines: string[]): void {
    const usual = [
      'build-users-group =',
      'sandbox = false',
      'substituters =',
      'experimental-features = nix-command',
      // Without it, the new commands use no substituters on a machine that has only a loopback interface.
      'substitute = true',
    ];
    writeFileSync(join(this.confDir, 'nix.conf'), `${[...usual, ...this.#settings, ...lines].join('\n')}\n`);
  }

  /** Runs a command with the sandbox's environment in its directory. Never rejects. */
  run(command: string, args: readonly string[] = [], options: RunOptions = {}): Promise<NixResult> {
    return new Promise((resolve) => {
      const settings = {
        env: { ...this.env, ...options.env },
        cwd: this.dir,
        timeout: options.timeout ?? 60_000,
        maxBuffer: 64 << 20,
      };
      execFile(command, [...args], settings, (error, stdout, stderr) => {
        const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        resolve({ code, stdout, stderr });
      });
    });
  }

  /** As {@link run}, for a command that must succeed: its output, without the last newline. */
  async must(command: string, args: readonly string[] = [], options: RunOptions = {}): Promise<string> {
    const { code, stdout, stderr } = await this.run(command, args, options);
    if (code !== 0) throw new Error(`${command} ${args.join(' ')} exited with ${code}:\n${stderr}`);
    return stdout.trimEnd();
  }

  /** Builds what a Nix expression names and returns the full paths of the outputs, in order. */
  async build(expression: string, options: RunOptions = {}): Promise<string[]> {
    const file = join(this.dir, `expression-${++this.#expressions}.nix`);
    writeFileSync(file, expression);
    const args = ['--no-out-link', file];
    return (await this.must('nix-build', args, options)).split('\n');
  }

  /** The names in the store that are neither derivations, locks nor hidden. */
  storeNames(): string[] {
    if (!existsSync(this.realStoreDir)) return [];
    return readdirSync(this.realStoreDir).filter((name) => !/^\.|\.(drv|lock|chroot)$/.test(name));
  }

  /** Empties the store and its database; what Nix remembers of caches stays. */
  clearStore(): void {
    removeTree(this.realStoreDir);
    removeTree(this.stateDir);
    mkdirSync(this.realStoreDir);
  }

  /** Makes the client forget what caches answered. */
  clearCacheCache(): void {
    const cache = join(this.home, '.cache', 'nix');
    if (!existsSync(cache)) return;
    for (const name of readdirSync(cache)) {
      if (name.startsWith('binary-cache')) rmSync(join(cache, name));
    }
  }

  /** The real nix-daemon on the sandbox's socket; resolved when it answers. */
  async startDaemon(options: { env?: NodeJS.ProcessEnv } = {}): Promise<NixDaemon> {
    const child = spawn('nix-daemon', [], {
      env: { ...this.env, NIX_REMOTE: this.env.NIX_REMOTE ?? 'local', ...options.env },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const daemon = new NixDaemon(child);
    this.#daemons.push(daemon);
    for (let attempt = 0; !(await accepts(this.socketPath)); attempt++) {
      if (attempt === 200 || child.exitCode !== null) throw new Error(`nix-daemon: ${daemon.log}`);
      await delay(25);
    }
    return daemon;
  }

  /**
   * An empty store whose paths have the same names as in this one, so that they can be substituted from
   * one to the other, though its files lie elsewhere ({@link realStoreDir}): for `nix-store -r`,
   * `nix copy`, `--verify` and the like; it cannot build.
   */
  secondStore(options: SandboxOptions = {}): NixSandbox {
    const dir = mkdtempSync(join(this.dir, 'second-'));
    const second = new NixSandbox(dir, this.storeDir, options.settings ?? this.#settings);
    this.#seconds.push(second);
    return second;
  }

  /** Stops the daemons and removes everything. */
  async remove(): Promise<void> {
    await Promise.all(this.#daemons.map((daemon) => daemon.stop()));
    await Promise.all(this.#seconds.map((second) => second.remove()));
    removeTree(this.dir);
  }
}

export class NixDaemon {
  readonly #child: ChildProcess;
  /** What it wrote to its standard error. */
  log = '';

  constructor(child: ChildProcess) {
    this.#child = child;
    child.on('error', (error) => {
      this.log += error.message;
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      this.log += chunk;
    });
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exit = new Promise((resolve) => this.#child.once('exit', resolve));
    this.#child.kill('SIGTERM');
    await exit;
  }
}

/**
 * `n` packages, each a directory with a small executable, each referring to the one before; the last is
 * what the expression builds. `salt` makes other store paths of it.
 */
export function closureExpr(n: number, salt = 'a'): string {
  return `let
  make = i: before: derivation {
    name = "pkg-\${toString i}";
    system = builtins.currentSystem;
    builder = "/bin/sh";
    inherit before;
    PATH = "/usr/bin:/bin";
    args = [ "-c" ''
      mkdir -p $out/bin
      echo "#!/bin/sh" > $out/bin/hello
      echo "echo ${salt} \${toString i} $before" >> $out/bin/hello
      chmod +x $out/bin/hello
      ln -s hello $out/bin/hi
    '' ];
  };
in builtins.foldl' (before: i: make i before) "" (builtins.genList (i: i + 1) ${n})
`;
}

function removeTree(dir: string): void {
  if (!existsSync(dir)) return;
  // Nix takes away the write permission of what is in the store.
  spawnSync('chmod', ['-R', 'u+w', dir]);
  rmSync(dir, { recursive: true, force: true });
}

function accepts(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}
