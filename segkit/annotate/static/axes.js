// The question what the axes of a file are, in place of its picture.

import { byId } from "./panel.js";

const WORDS = { T: "time points", Z: "planes", P: "positions", C: "channels", S: "colours", Y: "rows", X: "columns" };

export class AxesQuestion {
  /** `onAnswer(letters)` when the axes are named. */
  constructor(onAnswer) {
    this.form = byId("ask-axes");
    this.letters = byId("axes-letters");
    this.onAnswer = onAnswer;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.letters.value.trim()) onAnswer(this.letters.value.trim().toUpperCase());
    });
    byId("axes-cancel").addEventListener("click", () => this.hide());
    byId("axes-change").addEventListener("click", () => this.ask("the files", null, {}));
  }

  /** Ask for the axes of a file of this shape; `choices` are names that its sizes allow. */
  ask(name, shape, choices) {
    byId("ask-axes-title").textContent = `What are the axes of ${name}?`;
    byId("ask-axes-text").textContent = shape
      ? `The file holds ${shape.join(" × ")} values, and does not say what these numbers are.`
      : "Files that name their axes keep them.";
    byId("axes-choices").replaceChildren(...Object.keys(choices).map((letters) => this.choice(letters, shape)));
    this.letters.value = this.named ?? "";
    byId("axes-cancel").hidden = shape !== null;
    this.form.hidden = false;
    byId("stage").inert = true;
    byId("ask-axes-title").focus();
  }

  choice(letters, shape) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `${letters}: ${[...letters].map((letter, i) => `${shape[i]} ${WORDS[letter]}`).join(", ")}`;
    button.addEventListener("click", () => this.onAnswer(letters));
    return button;
  }

  hide() {
    this.form.hidden = true;
    byId("stage").inert = false;
  }

  /** The letters that were given before, if any. */
  setNamed(letters) {
    this.named = letters;
    byId("axes-row").hidden = !letters;
    byId("axes-named").textContent = letters ?? "";
  }
}
