// Keys: shortcuts, and a cross to draw with where there is no pointer.

const CROSS = 31; // pixels
const STEP = 12;
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Keyboard {
  /** `actions` has one function for each shortcut. */
  constructor(view, drawing, pointer, cursor, actions) {
    Object.assign(this, { view, drawing, pointer, cursor, actions });
    this.cross = null; // its point in the image
    this.singleKeys = true;
    window.addEventListener("keydown", (event) => this.down(event));
    window.addEventListener("keyup", (event) => this.up(event));
    window.addEventListener("blur", () => {
      this.setPan(false);
      this.pointer.sizes = false;
    });
    view.stage.addEventListener("pointerdown", () => this.hideCross());
  }

  down(event) {
    this.pointer.sizes = event.ctrlKey && event.key === "Control";
    if (document.querySelector("dialog[open]:not(#table)")) return;
    const { target } = event;
    if (target.closest?.("#table")) {
      if (event.key === "Escape") document.getElementById("table").close();
      return;
    }
    if (target.matches?.("input[type=text], input[type=number], select, textarea")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const onStage = target === this.view.stage || target === document.body;
    const done = event.ctrlKey || event.metaKey
      ? this.control(key, event)
      : (onStage && this.onStage(key, event)) || this.single(key, event);
    if (done) event.preventDefault();
  }

  control(key, event) {
    if (key === "z") this.actions[event.shiftKey ? "redo" : "undo"]();
    else if (key === "y") this.actions.redo();
    else return false;
    return true;
  }

  onStage(key, event) {
    if (ARROWS[key]) {
      const [dx, dy] = ARROWS[key];
      if (event.shiftKey) this.moveCross(dx, dy, event.altKey ? null : STEP);
      else if (!event.altKey) this.view.pan(-60 * dx, -60 * dy);
      else return false;
    } else if (key === " ") this.setPan(true);
    else if (key === "Enter") this.enter();
    else if (key === "Escape") this.escape();
    else return false;
    return true;
  }

  single(key, event) {
    if (key === "PageUp" || key === "PageDown") {
      this.actions.step(key === "PageUp" ? -1 : 1);
      return true;
    }
    if (!this.singleKeys || event.altKey) return false;
    const { actions } = this;
    const action = {
      b: () => actions.tool("brush"), e: () => actions.tool("eraser"), p: () => actions.tool("polygon"), f: () => actions.tool("fill"),
      a: () => actions.tool("accept"), d: () => actions.tool("delete"), m: () => actions.tool("merge"),
      s: () => actions.tool("split"), g: () => actions.tool("grow"), c: () => actions.tool("classify"), o: () => actions.tool("outline"),
      "[": () => actions.resize(-1), "]": () => actions.resize(1), v: () => actions.nextMode(), l: () => actions.toggleLabels(),
      n: () => actions.suggest(), "+": () => this.view.zoom(1.25), "=": () => this.view.zoom(1.25), "-": () => this.view.zoom(0.8),
      0: () => this.view.fit(), "?": () => actions.help(),
    }[key] ?? (/^[1-9]$/.test(key) ? () => actions.choose(Number(key) - 1) : null);
    action?.();
    return action !== null;
  }

  up(event) {
    if (event.key === " ") this.setPan(false);
    if (event.key === "Control") this.pointer.sizes = false;
  }

  setPan(on) {
    this.pointer.mayPan = on;
    this.view.stage.classList.toggle("pans", on);
  }

  /** Move the cross by screen pixels, or by one pixel of the image. */
  moveCross(dx, dy, step) {
    const { view } = this;
    const inSight = ([x, y]) => {
      const [px, py] = view.toStage(x, y);
      return px >= 0 && py >= 0 && px <= view.clientWidth && py <= view.clientHeight;
    };
    if (!this.cross || !inSight(this.cross)) this.cross = view.toImage(view.clientWidth / 2, view.clientHeight / 2).map(centred);
    else {
      const by = step === null ? 1 : Math.max(1, Math.round(step / view.scale));
      const clip = (value, most) => Math.min(most - 0.5, Math.max(0.5, value));
      this.cross = [clip(this.cross[0] + dx * by, view.width), clip(this.cross[1] + dy * by, view.height)];
      if (!inSight(this.cross)) view.pan(-dx * view.clientWidth / 3, -dy * view.clientHeight / 3);
    }
    this.drawing.move([this.cross]);
    this.placeCross();
    this.actions.hover(...this.cross);
  }

  placeCross() {
    if (!this.cross) return;
    const [px, py] = this.view.toStage(...this.cross);
    this.cursor.hidden = false;
    this.cursor.className = this.drawing.isDrawing ? "cross down" : "cross";
    this.cursor.style.width = this.cursor.style.height = `${CROSS}px`;
    this.cursor.style.transform = `translate(${px - CROSS / 2}px, ${py - CROSS / 2}px)`;
  }

  hideCross() {
    this.cross = null;
    this.cursor.className = "";
  }

  enter() {
    if (this.drawing.isDrawing) this.drawing.end();
    else if (this.cross) this.drawing.begin(...this.cross);
    else if (this.drawing.tool === "polygon") this.drawing.closePolygon();
    else this.moveCross(0, 0, STEP);
    this.placeCross();
  }

  escape() {
    this.drawing.giveUp();
    this.drawing.end();
    this.drawing.setCorners([]);
    this.hideCross();
    this.cursor.hidden = true;
  }
}

function centred(value) {
  return Math.floor(value) + 0.5;
}
