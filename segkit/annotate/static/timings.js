// Times for benchmarks, in ms, as `window.segkit`: reading them changes nothing.
//
// segkit.strokes  [{first, last}]: from the end of a stroke to the frame with the first block of its prediction,
//                 and to the frame with the last final block; null where it did not come.
// segkit.frames   time spent in each frame while a stroke was drawn.
// segkit.gaps     time between two such frames.
// segkit.clear()  forgets them.

const MOST = 10000;

export class Timings {
  constructor(view, isDrawing) {
    this.strokes = [];
    this.frames = [];
    this.gaps = [];
    this.waiting = null; // for the prediction after a stroke
    this.due = []; // what the next frame shows
    this.last = null;
    view.afterFrame.push((time, spent) => this.frame(isDrawing(), spent));
    const copy = (list) => Object.freeze([...list]);
    window.segkit = Object.freeze(Object.defineProperties({}, {
      strokes: { get: () => copy(this.strokes.map((entry) => Object.freeze({ ...entry }))) },
      frames: { get: () => copy(this.frames) },
      gaps: { get: () => copy(this.gaps) },
      clear: { value: () => { this.strokes.length = this.frames.length = this.gaps.length = 0; } },
    }));
  }

  strokeEnded(generation) {
    this.waiting = { start: performance.now(), generation, entry: { first: null, last: null } };
    keep(this.strokes, this.waiting.entry);
  }

  predicted(generation, isComplete) {
    if (!this.waiting || generation <= this.waiting.generation) return;
    if (this.waiting.entry.first === null) this.due.push([this.waiting, "first"]);
    if (isComplete) this.due.push([this.waiting, "last"]);
  }

  frame(isDrawing, spent) {
    const now = performance.now();
    for (const [{ start, entry }, name] of this.due) entry[name] ??= now - start;
    this.due = [];
    if (isDrawing) {
      keep(this.frames, spent);
      if (this.last !== null) keep(this.gaps, now - this.last);
    }
    this.last = isDrawing ? now : null;
  }
}

function keep(list, value) {
  if (list.length < MOST) list.push(value);
}
