import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { StoreError } from '../../errors.ts';
import type { Transport } from './connection.ts';

/** Where installers put Nix, for services whose PATH does not name them. */
const USUAL_PLACES = ['/nix/var/nix/profiles/default/bin', '/run/current-system/sw/bin'];

/** Connects to the daemon's Unix socket. @throws StoreError `daemon_unreachable` */
export function connectSocket(socketPath: string): Promise<Transport> {
  return new Promise((resolve, reject) => {
    const socket = connect(socketPath);
    socket.once('connect', () => {
      socket.removeAllListeners('error');
      resolve({ input: socket, output: socket, close: () => socket.destroy() });
    });
    socket.once('error', (error: NodeJS.ErrnoException) => {
      const denied = error.code === 'EACCES' || error.code === 'EPERM';
      reject(
        new StoreError('daemon_unreachable', `no Nix daemon answers at ${socketPath}: ${error.message}`, {
          hint: denied
            ? "Add this user to 'allowed-users' and check the permissions of the socket."
            : "Start it: 'systemctl start nix-daemon'.",
          cause: error,
        }),
      );
    });
  });
}

/**
 * A daemon of our own, on the pipes of a child: it serves a store that this user may write to.
 *
 * @param env says which store, as for every Nix command
 * @throws StoreError `daemon_unreachable` where there is no `nix-daemon` to run
 */
export function spawnDaemon(env: NodeJS.ProcessEnv): Promise<Transport> {
  return new Promise((resolve, reject) => {
    const places = [env.PATH, ...USUAL_PLACES, env.HOME && `${env.HOME}/.nix-profile/bin`];
    const child = spawn('nix-daemon', ['--stdio'], {
      env: { ...env, PATH: places.filter(Boolean).join(':'), NIX_REMOTE: 'local' },
      stdio: ['pipe', 'pipe', 'ignore'],
    });
    child.once('spawn', () => {
      const close = () => {
        // The end of its input is what the daemon ends at; what it was sent to do is not interrupted.
        child.stdin.destroy();
        child.stdout.destroy();
      };
      resolve({ input: child.stdout, output: child.stdin, close });
    });
    child.once('error', (error) => {
      reject(
        new StoreError('daemon_unreachable', `nix-daemon cannot be run: ${error.message}`, {
          hint: 'Check that Nix is installed and in the PATH.',
          cause: error,
        }),
      );
    });
  });
}
