// The page of segkit annotate: what each message and each control does.

import { AxesQuestion } from "./axes.js";
import { Classes } from "./classes.js";
import { Connection } from "./connection.js";
import { drawCurve } from "./curve.js";
import { Drawing } from "./drawing.js";
import { Gallery } from "./gallery.js";
import { Keyboard } from "./keyboard.js";
import { Marks } from "./marks.js";
import { ObjectPanel } from "./objects.js";
import { Overlay } from "./overlay.js";
import { Choice, Contrast, byId, recall, remember, slider } from "./panel.js";
import { Pointer } from "./pointer.js";
import { Results } from "./results.js";
import { ImageTiles } from "./tiles.js";
import { Timings } from "./timings.js";
import { View } from "./view.js";

const LOOK_DELAY = 120;
const SURE = 0.7; // "Looks right" asks for images whose expected object IoU is lower, or unknown

let image = null; // the shown one, as its message describes it
let wanted = null; // key of the image that was asked for
let jumpTo = null; // part of an image that is to be shown once it is there
let checked = null; // how good the shown prediction is expected to be
let lookTimer = null;
let network = { state: "none", shown: "kernel machine", text: "", done: 0, seconds_left: null, object_iou: null };
let expectedOfStrokes = null; // object IoU

// drawing area

const view = new View(byId("stage"), () => {
  byId("zoom").textContent = `${Math.round(100 * view.scale)} %`;
  requestAnimationFrame(() => {
    pointer?.refresh();
    keyboard?.placeCross();
  });
  clearTimeout(lookTimer);
  lookTimer = setTimeout(look, LOOK_DELAY);
});
const tiles = new ImageTiles(view, () => view.invalidate(imageLayer), (error) => fail(error.message));
const imageLayer = view.addLayer(byId("layer-image"), (context, box) => tiles.draw(context, box));
const overlay = new Overlay(view, { prediction: byId("layer-prediction"), labels: byId("layer-labels") });
const drawing = new Drawing(overlay, (...piece) => keep(...piece), say, () => marks.update());
const marks = new Marks(view, byId("layer-marks"), drawing);
const timings = new Timings(view, () => drawing.isDrawing);
drawing.onEnd = () => timings.strokeEnded(overlay.prediction?.generation ?? -1);

function look() {
  if (image) connection.send({ op: "view", image: image.image, box: view.box() });
}

function hover(x, y) {
  drawing.closeBy = 7 / view.scale;
  drawing.tip = [x, y];
  if (drawing.corners.length) marks.update();
  byId("readout").textContent = image ? overlay.describe(Math.floor(y), Math.floor(x)) : "";
}

// images

const gallery = new Gallery(byId("images"), show);

function show(key) {
  if (!key || key === wanted) return;
  drawing.end();
  wanted = key;
  axes.hide();
  history.replaceState(null, "", `#${encodeURIComponent(key)}`);
  gallery.setCurrent(key);
  connection.send({ op: "open", image: key });
}

// messages of the server

const connection = new Connection({
  connected(isConnected, reason) {
    document.body.classList.toggle("lost", !isConnected);
    if (isConnected) {
      removeFault("connection");
      removeFault("not asked");
      return;
    }
    setStatus(`Connection lost${reason ? ` (${reason})` : ""}`);
    fail("The connection to segkit is lost. Your strokes stay on this page, and are sent when it is back.", "connection");
  },
  refused() {
    fail("This page has no valid token, as if segkit was started anew. Open the address that it printed; this page can no longer save.", "connection");
  },
  keptChanged: showSaved,
  hello(message) {
    const first = image === null;
    gallery.setImages(message.images);
    document.body.dataset.output = message.output;
    byId("saved").title = `Saved in ${message.output}`;
    byId("source-row").hidden = !message.has_model;
    setSettings(message);
    classes.set(message.classes);
    showSaved();
    setNetwork(message.network);
    results.setRun(message.run, message.results);
    objects.setSettings(message.object_settings);
    axes.setNamed(message.axes);
    const keys = message.images.map((entry) => entry.key);
    if (first) setStatus("Connected");
    byId("hint").hidden = recall("hint-seen", false) || message.images.some((entry) => entry.state !== "none");
    const asked = decodeURIComponent(location.hash.slice(1));
    const key = keys.includes(wanted) ? wanted : keys.includes(asked) ? asked : keys[0];
    wanted = null;
    show(key);
  },
  images(message) { // the axes of files were named
    const keys = message.images.map((entry) => entry.key);
    const stem = (key) => key.replace(/#\d+$/, "");
    const next = keys.find((key) => key === wanted) ?? keys.find((key) => stem(key) === stem(wanted)) ?? keys[0];
    image = wanted = null;
    drawing.setImage(null);
    gallery.setImages(message.images, true);
    axes.setNamed(message.axes);
    overlay.clearPrediction();
    show(next);
  },
  ask_axes(message) {
    if (message.image !== wanted) return;
    image = null; // nothing may be drawn on the former one
    drawing.setImage(null);
    byId("image-name").textContent = message.image;
    setStatus("This file does not say what its axes are");
    axes.ask(message.image, message.shape, message.choices);
  },
  image(message) {
    if (message.image !== wanted) return;
    axes.hide();
    const isNew = image?.image !== message.image;
    const fits = image && image.height === message.height && image.width === message.width;
    image = message;
    byId("image-name").textContent = message.image;
    document.title = `${message.image} – segkit annotate`;
    byId("stage").setAttribute("aria-label", `Drawing area, image ${message.image}, ${message.width} by ${message.height} pixels`);
    contrast.setImage(message);
    tiles.setImage(message);
    contrast.report();
    if (!isNew && fits) return; // the connection is back: view and strokes stay
    overlay.setSize(message.height, message.width);
    marks.setSize(message.height, message.width);
    drawing.setImage(message);
    setChecked(null);
    setObjects(null);
    setAdvice(null);
    byId("readout").textContent = ""; // it was of the former image
    marks.pointed = null;
    view.setImage(message.height, message.width);
    if (jumpTo?.key === message.image) jump(message.image, jumpTo.box);
    jumpTo = null;
  },
  labels(message, values) {
    if (message.image !== image?.image) return;
    overlay.setLabels(message.corner, message.shape, values);
    drawing.repaint(connection.undrawn(message.image));
    for (const name of ["undo", "redo"]) setStep(name, message[name]);
  },
  prediction(message, payload) {
    if (message.image !== image?.image) return;
    const isComplete = overlay.setPrediction(message, payload);
    if (checked && checked.generation < message.generation) setChecked(null);
    timings.predicted(message.generation, isComplete);
    byId("accept").disabled = false;
  },
  status(message) {
    const share = message.done > 0 && message.done < 1 ? message.done : null;
    setStatus(`${message.text}${share === null ? "" : ` ${Math.round(100 * share)} %`}`, share);
    if (message.task === "needs labels" && (message.key === null || message.key === image?.image)) {
      overlay.clearPrediction();
      setChecked(null);
      setObjects(null);
      byId("accept").disabled = true;
    }
    byId("next").disabled = byId("check-labels").disabled = message.task === "needs labels";
  },
  checked(message) {
    if (message.image === image?.image) setChecked(message);
  },
  objects(message, bits) {
    if (message.image === image?.image) setObjects(message, bits);
  },
  advice(message) {
    if (message.image === image?.image) setAdvice(message);
    gallery.setRanking(message.ranking);
  },
  doubts: setDoubts,
  object_settings: (message) => objects.setSettings(message),
  network: setNetwork,
  run: (message) => results.setRun(message),
  expected(message) {
    drawCurve(byId("curve"), byId("expected-text"), message.points);
    if (network.shown !== "network") expectedOfStrokes = message.points.at(-1)?.object_iou ?? null; // the network has its own
    setNetwork(network);
  },
  states: (message) => gallery.setStates(message.images),
  saved: showSaved,
  classes(message) {
    classes.set(message.classes);
  },
  settings: setSettings,
  exported(message) {
    for (const name of ["model", "masks", "command", "predict", "count"]) byId(`export-${name}`).textContent = message[name];
    byId("export-rule").textContent = sentence(message.objects);
    byId("export-objects").hidden = !message.objects;
    byId("export-wait").hidden = true;
    byId("export-done").hidden = false;
    if (!byId("exported").open) byId("exported").showModal();
    setStatus("Exported");
  },
  failed(message) {
    fail(message.message);
    if (!byId("export-wait").hidden) byId("exported").close();
  },
});

function keep(header, payload, spans) {
  byId("hint").hidden = true;
  connection.sendKept(header, payload, spans);
  byId("undo").disabled = false;
  showSaved();
}

/** Ask for what cannot wait for the connection to come back. */
function ask(header) {
  if (connection.isOpen) connection.send(header);
  else fail("This needs the connection to segkit. Try again when it is back.", "not asked");
  return connection.isOpen;
}

function command(op) {
  if (!image) return;
  drawing.end();
  connection.sendKept({ op, image: image.image });
  showSaved();
}

window.addEventListener("focus", look); // another tab may have taught more, on another image

window.addEventListener("beforeunload", (event) => {
  if (!connection.isSaved) event.preventDefault();
});

/** A step to undo or redo, by the box that it changes; the button shows it while the pointer is on it. */
const steps = { undo: null, redo: null };
function setStep(name, box) {
  steps[name] = box;
  byId(name).disabled = !box;
  if (byId(name).matches(":hover")) pointAt(box);
}

function pointAt(box) {
  marks.pointed = box;
  marks.update();
}

// what the page says

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function setStatus(text, share = null) {
  byId("status-text").textContent = sentence(text);
  byId("status-progress").hidden = share === null;
  byId("status-progress").value = share ?? 0;
}

function showSaved() {
  byId("saved").textContent = connection.isSaved ? "· all saved" : "· saving …";
}

let hintTimer = null;
function say(text) {
  byId("readout").textContent = text;
  byId("readout").setAttribute("role", "status");
  clearTimeout(hintTimer);
  hintTimer = setTimeout(() => byId("readout").removeAttribute("role"), 5000);
}

/** A message stays until it is dismissed; the same one is shown once. */
function fail(text, kind = text) {
  if ([...byId("faults").children].some((bar) => bar.dataset.kind === kind && bar.firstChild.textContent === text)) return;
  removeFault(kind);
  const bar = document.createElement("div");
  bar.className = "fault";
  bar.dataset.kind = kind;
  const words = document.createElement("span");
  words.textContent = text;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Dismiss";
  close.addEventListener("click", () => bar.remove());
  bar.append(words, close);
  byId("faults").append(bar);
  if (byId("faults").children.length > 4) byId("faults").firstChild.remove();
}

function removeFault(kind) {
  for (const bar of [...byId("faults").children]) if (bar.dataset.kind === kind) bar.remove();
}

const percent = (share) => `${Math.round(100 * share)} %`;

function setChecked(message) {
  checked = message;
  byId("checked").hidden = !message;
  byId("checked").textContent = `Expected object IoU here: ${expectation()}`;
}

const expectation = () => (checked?.object_iou == null ? "unknown" : percent(checked.object_iou));

/** Take the prediction as labels; first ask, if it may be wrong. */
function accept() {
  if (checked?.object_iou >= SURE) {
    command("accept");
    return;
  }
  byId("doubt-text").textContent = `The expected object IoU of this image is ${expectation()}. `
    + "Your labels stay; every other pixel gets the predicted class, and segkit learns the errors among them. Look at the whole image first.";
  byId("doubt").returnValue = "";
  byId("doubt").showModal();
}

function setObjects(message, bits = null) {
  marks.setOutlines(bits);
  objects.show(message);
  if (!byId("table").open) return;
  if (message) showTable();
  else byId("table").close();
}

/** Whose prediction is shown, and what is known of both. */
function setNetwork(message) {
  network = message;
  const { state, shown, done, seconds_left: left, object_iou: iou } = network;
  const isTraining = state === "training";
  const scores = [["network", iou], ["quick model", expectedOfStrokes]].filter(([, score]) => score != null);
  const told = scores.map(([name, score]) => `${name} ${percent(score)}`).join(", ");
  const byWhom = { network: "The network predicts.", "kernel machine": "The quick model of your strokes predicts.", model: "The opened model predicts." }[shown];
  const about = isTraining
    ? `${network.text} … ${left == null ? "" : minutes(left)}`
    : { none: "A network learns more of your labels, in minutes.", earlier: "Labels have changed since the network was trained.", current: "" }[state];
  byId("network-text").textContent = `${byWhom} ${about}${told ? ` Expected object IoU on other images: ${told}.` : ""}`;
  byId("network-progress").hidden = byId("cancel-network").hidden = !isTraining;
  byId("network-progress").value = done;
  byId("train-network").hidden = isTraining;
  byId("train-network").disabled = state === "current";
  byId("train-network").textContent = state === "none" ? "Train a network" : "Train it again";
}

const minutes = (seconds) => (seconds < 90 ? `${Math.ceil(seconds / 10) * 10} s left.` : `${Math.round(seconds / 60)} min left.`);

function setAdvice(message) {
  marks.boxes = message?.boxes ?? [];
  marks.update();
  const row = byId("advice");
  row.hidden = !marks.boxes.length;
  const buttons = marks.boxes.map((box, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = String(i + 1);
    button.setAttribute("aria-label", `Go to area ${i + 1}`);
    button.addEventListener("click", () => view.showBox(box));
    return button;
  });
  row.replaceChildren("Go to area", ...buttons);
}

/** Labels that other images contradict; a click shows them. */
function setDoubts({ doubts }) {
  const nameOf = (value) => classes.entries.find((entry) => entry.value === value)?.name ?? value;
  const items = doubts.map(({ key, box, value, predicted, share }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${key}: ${nameOf(value)}, perhaps ${nameOf(predicted)} (${percent(share)})`;
    button.addEventListener("click", () => jump(key, box));
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  byId("doubts").hidden = false;
  byId("doubts").replaceChildren(...(items.length ? items : ["No label is contradicted."]));
}

/** Show a part of an image, and mark it; of another image, once it is there. */
function jump(key, box) {
  if (image?.image !== key) {
    jumpTo = { key, box };
    show(key);
    return;
  }
  jumpTo = null;
  marks.pointed = box;
  view.showBox(box);
}

// controls

const tools = new Choice("tool", (value) => {
  drawing.setTool(value);
  if (!document.querySelector("#object-tools input:checked")) return;
  byId("objects").open = true;
  if (!byId("show-objects").checked) byId("show-objects").click();
});
const objects = new ObjectPanel(
  (settings) => ask({ op: "object_settings", ...settings }),
  pointAt,
);
const results = new Results(ask, {
  show,
  openTable: () => objects.openAll().catch((error) => fail(error.message)),
  fail,
  minutes,
});
const modes = new Choice("mode", (mode) => {
  overlay.setMode(mode);
  remember("mode", mode);
  opacity.set(opacities[mode]);
  byId("legend").hidden = mode !== "probability" && mode !== "uncertainty";
});
const size = slider("size", (value) => `${value} px`, (value) => {
  drawing.size = value;
  remember("size", value);
  pointer?.refresh();
});
const opacities = { off: 45, fill: 45, outlines: 100, probability: 60, uncertainty: 60 }; // each view keeps its own
const opacity = slider("opacity", (value) => `${value} %`, (value) => {
  opacities[overlay.mode] = value;
  byId("layer-prediction").style.opacity = value / 100;
});
const classes = new Classes(
  byId("classes"),
  byId("add-class"),
  (entries) => ask({ op: "classes", classes: entries }) || classes.set(classes.entries),
  (value) => {
    drawing.end();
    drawing.value = value;
    drawing.background = classes.entries[0].value;
    overlay.setClasses(classes.entries);
    overlay.choose(value);
  },
);
const axes = new AxesQuestion((letters) => ask({ op: "axes", axes: letters }));
const contrast = new Contrast((query) => {
  tiles.setContrast(query);
  view.invalidate(imageLayer);
});

function setSettings({ live, source }) {
  byId("live").checked = live;
  byId("source").value = source;
}

function sendSettings() {
  ask({ op: "settings", live: byId("live").checked, source: byId("source").value });
}

function suggest() {
  if (image && !byId("next").disabled) ask({ op: "suggest", image: image.image });
}

function showTable() {
  if (!image) return;
  const key = image.image;
  objects.openImage(key, () => image?.image === key).catch((error) => fail(error.message));
}

const clicks = {
  undo: () => command("undo"),
  redo: () => command("redo"),
  accept,
  next: suggest,
  "check-labels": () => ask({ op: "check_labels" }),
  "zoom-in": () => view.zoom(1.25),
  "zoom-out": () => view.zoom(0.8),
  "zoom-fit": () => view.fit(),
  help: () => byId("shortcuts").showModal(),
  "hint-close"() {
    byId("hint").hidden = true;
    remember("hint-seen", true);
  },
  "accept-objects": () => command("accept_objects"),
  "show-table": showTable,
  "train-network": () => ask({ op: "train_network" }),
  "cancel-network": () => ask({ op: "cancel_network" }),
  export() {
    drawing.end();
    if (!ask({ op: "export" })) return;
    byId("export-wait").hidden = false;
    byId("export-done").hidden = true;
    byId("exported").showModal();
  },
};
for (const [id, action] of Object.entries(clicks)) byId(id).addEventListener("click", action);
for (const name of ["undo", "redo"]) {
  byId(name).addEventListener("pointerenter", () => pointAt(steps[name]));
  byId(name).addEventListener("pointerleave", () => pointAt(null));
}
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", () => copy(button));
byId("doubt").addEventListener("close", () => {
  if (byId("doubt").returnValue === "accept") command("accept");
});
byId("live").addEventListener("change", sendSettings);
byId("source").addEventListener("change", sendSettings);
byId("show-labels").addEventListener("change", (event) => {
  byId("layer-labels").hidden = !event.target.checked;
});
byId("show-objects").addEventListener("change", (event) => {
  marks.showOutlines = event.target.checked;
  marks.update();
});

async function copy(button) {
  const code = byId(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(code);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 2500);
}

// pointer and keys

function resize(by) {
  const step = Math.max(1, Math.round(drawing.size / 6));
  size.set(Math.min(200, Math.max(1, drawing.size + by * step)));
}

const pointer = new Pointer(view, drawing, byId("cursor"), { hover, resize });
const keyboard = new Keyboard(view, drawing, pointer, byId("cursor"), {
  undo: clicks.undo,
  redo: clicks.redo,
  suggest,
  hover,
  help: clicks.help,
  tool: (name) => tools.set(name),
  choose: (i) => classes.chooseAt(i),
  nextMode: () => modes.next(),
  toggleLabels: () => byId("show-labels").click(),
  step: (by) => show(gallery.neighbour(wanted, by)),
  resize,
});
size.set(recall("size", 12));
modes.set(recall("mode", "fill"));
byId("single-keys").addEventListener("change", (event) => { keyboard.singleKeys = event.target.checked; });
