// The websocket: framing, what is not yet on disk, and a connection that comes back.

import { at } from "./address.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 15000;

export class Connection {
  /** `on` has one function for each message (`on.labels(header, payload)`), and `on.connected(isConnected, reason)`. */
  constructor(on) {
    this.on = on;
    this.page = crypto.randomUUID();
    this.seq = 0;
    this.kept = []; // strokes and commands that are not on disk yet, in order
    this.saved = new Map(); // image -> version on disk
    this.wait = FIRST_WAIT;
    this.connect();
  }

  connect() {
    const socket = new WebSocket(at("ws", { page: this.page }).replace("http", "ws"));
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = (event) => this.lost(event);
  }

  get isOpen() {
    return this.ready === true && this.socket.readyState === WebSocket.OPEN;
  }

  /** Send what may be lost with the connection. */
  send(header, payload) {
    if (this.isOpen) this.socket.send(pack(header, payload));
  }

  /** Send a stroke, undo, redo or accept; it is kept until it is on disk. */
  sendKept(header, payload, spans = null) {
    const entry = { header: { ...header, seq: ++this.seq }, payload, spans, applied: false, version: null };
    this.kept.push(entry);
    if (this.isOpen) this.socket.send(pack(entry.header, payload));
  }

  /** Pieces of strokes on an image that the server has not drawn yet. */
  *undrawn(image) {
    for (const entry of this.kept) {
      if (!entry.applied && entry.spans && entry.header.image === image) yield entry;
    }
  }

  get isSaved() {
    return this.kept.length === 0;
  }

  receive(data) {
    const length = new DataView(data).getUint32(0, true);
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length)));
    if (header.op === "hello") this.greet(header);
    if (header.op === "applied") this.acknowledge(header);
    if (header.op === "saved") {
      this.saved.set(header.image, Math.max(header.version, this.saved.get(header.image) ?? 0));
      this.prune();
    }
    this.on[header.op]?.(header, new Uint8Array(data, 4 + length));
  }

  greet(header) {
    this.ready = true;
    this.wait = FIRST_WAIT;
    this.on.connected(true);
    if (this.kept.some((entry) => entry.applied && entry.header.seq > header.applied)) this.saved.clear(); // a new server
    for (const entry of this.kept) {
      entry.applied = entry.header.seq <= header.applied;
      if (!entry.applied) this.socket.send(pack(entry.header, entry.payload));
    }
  }

  acknowledge(header) {
    for (const entry of this.kept) {
      if (entry.header.image !== header.image || entry.header.seq > header.seq) continue;
      entry.applied = true;
      entry.version = header.version;
    }
    this.prune();
  }

  prune() {
    this.kept = this.kept.filter(
      (entry) => !(entry.applied && entry.version !== null && entry.version <= (this.saved.get(entry.header.image) ?? -1)),
    );
    this.on.keptChanged();
  }

  lost(event) {
    this.ready = false;
    this.on.connected(false, event.reason);
    setTimeout(() => this.retry(), this.wait);
    this.wait = Math.min(LONGEST_WAIT, 2 * this.wait);
  }

  async retry() {
    try {
      const answer = await fetch(at(""), { method: "HEAD", cache: "no-store" });
      if (answer.status === 403) {
        this.on.refused();
        return;
      }
    } catch {
      // nobody there yet: the attempt below fails, and is made again
    }
    this.connect();
  }
}

function pack(header, payload = new Uint8Array(0)) {
  const text = new TextEncoder().encode(JSON.stringify(header));
  const frame = new Uint8Array(4 + text.length + payload.length);
  new DataView(frame.buffer).setUint32(0, text.length, true);
  frame.set(text, 4);
  frame.set(payload, 4 + text.length);
  return frame;
}
