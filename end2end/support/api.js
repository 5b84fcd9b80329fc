// The API of section 4 of the contract, and the control API of the built-in provider, as a program calls them.
import { expect } from "@playwright/test";

const LIFETIME_MS = 30 * 60_000;

export class Api {
  #server;
  #key;
  #count = 0;

  constructor(server, key) {
    this.#server = server;
    this.#key = key;
  }

  async #call(method, path, body) {
    const response = await fetch(this.#server.url + path, {
      method,
      headers: { Authorization: `Bearer ${this.#key}`, "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  /** Gives the record. What is not named is made up, new for each event. */
  async admit({ lifetime_ms = LIFETIME_MS, ...fields } = {}) {
    const event_id = fields.event_id ?? `ev-${process.pid}-${(this.#count += 1)}`;
    return this.#call("POST", "/v1/events", {
      event_id,
      idempotency_key: `key-${event_id}`,
      destination_ref: `dest-${event_id}`,
      reset_ref: `reset-${event_id}`,
      expires_at: new Date(Date.now() + lifetime_ms).toISOString(),
      ...fields,
    });
  }

  event(id) {
    return this.#call("GET", `/v1/events/${id}`);
  }

  async expectState(id, state) {
    await expect.poll(async () => (await this.event(id)).state, { timeout: 15_000 }).toBe(state);
  }

  /** An event whose call got no answer. Look-ups fail until `provider({})` is called, so it stays unknown. */
  async admitUnknown(fields) {
    await this.provider({ behaviour: ["accept_then_hang"], lookup_down: true });
    const record = await this.admit(fields);
    await this.expectState(record.id, "dispatch_unknown");
    return record;
  }

  freeze(scope, reason) {
    return this.#call("PUT", `/v1/freezes/${encodeURIComponent(scope)}`, { reason });
  }

  async freezes() {
    return (await this.#call("GET", "/v1/freezes")).freezes;
  }

  unfreeze(scope) {
    return this.#call("DELETE", `/v1/freezes/${encodeURIComponent(scope)}`);
  }

  /** What the built-in provider does from now on; `{}`: it accepts and answers. */
  async provider(script) {
    const body = JSON.stringify({ provider: "demo", match: {}, behaviour: ["accept"], ...script });
    const response = await fetch(`${this.#server.control}/_control/script`, { method: "POST", body });
    if (!response.ok) throw new Error(`script: ${response.status} ${await response.text()}`);
  }
}
