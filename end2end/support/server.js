// Starts the built program on a free port with a data directory of its own, and stops it again.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const START_MS_MAX = 20_000;
const STOP_MS_MAX = 15_000;
const LOG_LINES_MAX = 200;

const BINARY = process.env.SENDONCE_BIN ?? join(ROOT, "target/debug/sendonce");

export async function freePort() {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address();
  probe.close();
  await once(probe, "close");
  return port;
}

export class Server {
  #child = null;
  #log = [];

  /** `settings`: configuration by its environment names, as in `{ SENDONCE_DISPATCH__WORKERS: "2" }`. */
  static async start(settings = {}) {
    if (!existsSync(BINARY)) throw new Error(`${BINARY} is not built; run \`make build\` or set SENDONCE_BIN`);
    const server = new Server();
    server.directory = await mkdtemp(join(tmpdir(), "sendonce-e2e-"));
    // Another process may take the port between the look and the bind; then it is tried once more.
    for (let attempt = 1; ; attempt += 1) {
      const port = await freePort();
      server.url = `http://127.0.0.1:${port}`;
      server.env = {
        PATH: process.env.PATH,
        HOME: server.directory,
        SENDONCE_SERVER__LISTEN: `127.0.0.1:${port}`,
        SENDONCE_SERVER__PUBLIC_URL: server.url,
        SENDONCE_SERVER__DATA_DIR: join(server.directory, "data"),
        SENDONCE_SERVER__SITE_DIR: join(ROOT, "target/site"),
        ...settings,
      };
      try {
        await server.#serve();
        return server;
      } catch (error) {
        await server.#kill("SIGKILL");
        if (attempt === 2) {
          await server.stop();
          throw error;
        }
      }
    }
  }

  async #serve() {
    // Its working directory is its own, so that no configuration file of the checkout is read.
    this.#child = spawn(BINARY, ["serve"], { cwd: this.directory, env: this.env, stdio: ["ignore", "pipe", "pipe"] });
    for (const stream of [this.#child.stdout, this.#child.stderr]) {
      stream.setEncoding("utf8").on("data", (text) => {
        this.#log.push(...text.split("\n").filter(Boolean));
        this.#log.splice(0, this.#log.length - LOG_LINES_MAX);
      });
    }
    const until = Date.now() + START_MS_MAX;
    while (Date.now() < until) {
      if (this.#child.exitCode !== null || this.#child.signalCode !== null) break;
      const isUp = await fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(1_000) }).then(
        (response) => response.ok,
        () => false,
      );
      if (isUp) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(`sendonce did not start:\n${this.log}`);
  }

  get log() {
    return this.#log.join("\n");
  }

  get pid() {
    return this.#child.pid;
  }

  /** Runs a command of the program against this server's data; gives its standard output. */
  async cli(args, input = "") {
    const child = spawn(BINARY, args, { cwd: this.directory, env: this.env, stdio: ["pipe", "pipe", "pipe"] });
    let [out, error] = ["", ""];
    child.stdout.setEncoding("utf8").on("data", (text) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text) => (error += text));
    child.stdin.end(input);
    const [code] = await once(child, "close");
    if (code !== 0) throw new Error(`sendonce ${args.join(" ")}: exit ${code}\n${error}`);
    return out;
  }

  async addUser(email, role, password) {
    await this.cli(["user", "add", "--email", email, "--role", role, "--password-stdin"], `${password}\n`);
    return { email, role, password };
  }

  /** Gives the new client's key. */
  async addClient(name, ...scopes) {
    return (await this.cli(["client", "add", "--name", name, ...scopes.flatMap((scope) => ["--scope", scope])])).trim();
  }

  async stop() {
    await this.#kill("SIGTERM");
    await rm(this.directory, { recursive: true, force: true });
  }

  async #kill(signal) {
    const child = this.#child;
    this.#child = null;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill(signal);
    const timer = setTimeout(() => child.kill("SIGKILL"), STOP_MS_MAX);
    await gone;
    clearTimeout(timer);
  }
}
