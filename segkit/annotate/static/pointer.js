// Pointer, wheel and touch on the stage: draw, pan, zoom.

const TOUCH_DELAY = 70; // ms in which a second finger makes two fingers of one
const TOUCH_SLACK = 8; // pixels that a single finger moves before it draws

export class Pointer {
  constructor(view, drawing, cursor, { hover, resize }) {
    Object.assign(this, { view, drawing, cursor, onHover: hover, resize });
    this.fingers = new Map();
    this.mayPan = false; // while the space bar is down
    this.sizes = false; // while the Ctrl key is down: the wheel changes the brush; a pinch comes as a wheel with Ctrl, too
    this.action = null; // "draw", "pan", "wait" (a finger that may become two), "pinch"
    const { stage } = view;
    stage.addEventListener("pointerdown", (event) => this.down(event));
    stage.addEventListener("pointermove", (event) => this.move(event));
    stage.addEventListener("pointerup", (event) => this.up(event));
    stage.addEventListener("pointercancel", (event) => {
      this.drawing.giveUp();
      this.up(event);
    });
    stage.addEventListener("pointerleave", () => { if (!this.action) this.hide(); });
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("contextmenu", (event) => event.preventDefault());
    stage.addEventListener("auxclick", (event) => event.preventDefault());
  }

  at(event) {
    const box = this.view.stage.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  down(event) {
    const { stage } = this.view;
    stage.focus({ preventScroll: true });
    event.preventDefault();
    const place = this.at(event);
    this.fingers.set(event.pointerId, place);
    stage.setPointerCapture(event.pointerId);
    if (this.fingers.size > 1) {
      this.drawing.giveUp();
      if (this.action === "draw") this.drawing.end();
      this.action = "pinch";
    } else if (event.button === 1 || (event.button === 0 && this.mayPan)) {
      this.action = "pan";
      stage.classList.add("panning");
    } else if (event.button === 2 && this.drawing.hasSize) {
      this.action = "draw";
      this.drawing.begin(...this.view.toImage(...place), { erases: true });
    } else if (event.button !== 0) {
      this.fingers.delete(event.pointerId);
    } else if (event.pointerType === "touch") {
      this.action = "wait";
      this.began = place;
      this.timer = setTimeout(() => this.draw(), TOUCH_DELAY);
    } else {
      this.action = "draw";
      this.drawing.begin(...this.view.toImage(...place));
    }
    this.show(place, event);
  }

  /** A single finger draws from where it came down. */
  draw() {
    clearTimeout(this.timer);
    if (this.action !== "wait") return;
    this.action = "draw";
    this.drawing.begin(...this.view.toImage(...this.began));
  }

  move(event) {
    const place = this.at(event);
    const before = this.fingers.get(event.pointerId);
    if (!before) {
      this.show(place, event);
      return;
    }
    if (this.action === "wait" && Math.hypot(place[0] - this.began[0], place[1] - this.began[1]) > TOUCH_SLACK) this.draw();
    if (this.action === "pinch") this.pinch(event.pointerId, before, place);
    if (this.action === "pan") this.view.pan(place[0] - before[0], place[1] - before[1]);
    if (this.action === "draw") {
      const events = event.getCoalescedEvents?.() ?? [];
      this.drawing.move((events.length ? events : [event]).map((one) => this.view.toImage(...this.at(one))));
    }
    this.fingers.set(event.pointerId, place);
    this.show(place, event);
  }

  pinch(id, before, place) {
    const other = [...this.fingers].find(([name]) => name !== id)?.[1];
    if (!other) return;
    const [was, is] = [before, place].map(([x, y]) => Math.hypot(x - other[0], y - other[1]));
    const middle = [(place[0] + other[0]) / 2, (place[1] + other[1]) / 2];
    this.view.pan((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
    if (was > 0 && is > 0) this.view.zoom(is / was, ...middle);
  }

  up(event) {
    if (!this.fingers.delete(event.pointerId)) return;
    if (this.action === "wait") this.draw(); // a tap
    if (this.fingers.size) return; // the last of two fingers neither draws nor pans
    if (this.action === "draw") this.drawing.end();
    this.action = null;
    this.view.stage.classList.remove("panning");
    if (event.pointerType === "touch") this.hide();
  }

  wheel(event) {
    event.preventDefault();
    if (this.sizes) {
      this.resize(event.deltaY < 0 ? 1 : -1);
      return;
    }
    const unit = [1, 16, 400][event.deltaMode];
    const speed = event.ctrlKey ? 0.01 : 0.0016; // a pinch on a touch pad comes as a wheel with Ctrl
    this.view.zoom(Math.exp(-event.deltaY * unit * speed), ...this.at(event));
    this.show(this.at(event), event);
  }

  /** The brush's circle follows the pointer, moved by the compositor alone. */
  show([px, py], event) {
    const { size } = this.drawing;
    const { style, classList } = this.cursor;
    this.place = [px, py];
    const round = this.drawing.hasSize && event.pointerType !== "touch" && !this.mayPan;
    classList.remove("cross");
    this.cursor.hidden = !round;
    const diameter = Math.max(3, size * this.view.scale);
    style.width = style.height = `${diameter}px`;
    style.transform = `translate(${px - diameter / 2}px, ${py - diameter / 2}px)`;
    this.onHover(...this.view.toImage(px, py));
  }

  /** The size has changed, or the zoom: the circle too. */
  refresh() {
    if (this.place && !this.cursor.hidden && !this.cursor.classList.contains("cross")) this.show(this.place, {});
  }

  hide() {
    if (!this.cursor.classList.contains("cross")) this.cursor.hidden = true;
  }
}
