import { PassThrough } from 'node:stream';
import type { Transport } from '../../nix/store/daemon/connection.ts';
import { encode, WireReader, type WireValue } from '../../nix/store/daemon/wire.ts';

/** The other end of a connection: what a Nix daemon would send is written by hand. */
export class FakeDaemon {
  readonly transport: Transport;
  /** What the client wrote. */
  readonly received: WireReader;
  closed = false;
  readonly #output = new PassThrough();

  constructor() {
    const requests = new PassThrough();
    this.received = new WireReader(requests, 2000);
    const close = () => {
      this.closed = true;
      this.#output.destroy();
      requests.destroy();
    };
    this.transport = { input: this.#output, output: requests, close };
  }

  send(...values: readonly WireValue[]): void {
    this.#output.write(encode(...values));
  }

  sendBytes(bytes: Buffer): void {
    this.#output.write(bytes);
  }

  end(): void {
    this.#output.end();
  }
}
