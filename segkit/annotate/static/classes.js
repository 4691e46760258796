// The list of classes: number, colour, name; which one is drawn.

// Okabe and Ito's colours, which colour-blind eyes tell apart.
const COLOURS = ["#56b4e9", "#f0e442", "#009e73", "#e69f00", "#cc79a7", "#0072b2", "#d55e00"];

export class Classes {
  /** `onChange(classes)` when they are edited, `onChoose(value)` when another one is drawn. */
  constructor(list, addButton, onChange, onChoose) {
    Object.assign(this, { list, onChange, onChoose });
    this.entries = [];
    this.chosen = null;
    addButton.addEventListener("click", () => this.add());
  }

  set(entries) {
    const sorted = [...entries].sort((a, b) => a.value - b.value);
    this.entries = sorted;
    if (!sorted.some((entry) => entry.value === this.chosen)) this.chosen = (sorted[1] ?? sorted[0]).value;
    const had = this.list.contains(document.activeElement) ? document.activeElement.id : null;
    this.list.replaceChildren(...sorted.map((entry, i) => this.row(entry, i)));
    if (had) document.getElementById(had)?.focus();
    this.onChoose(this.chosen);
  }

  row(entry, i) {
    const item = document.createElement("li");
    const label = make("label", { className: "pick", title: `Draw ${entry.name} (${i + 1})` });
    const radio = make("input", { type: "radio", name: "class", value: entry.value, checked: entry.value === this.chosen });
    radio.setAttribute("aria-label", `Draw class ${i + 1}, ${entry.name}`);
    label.append(radio, String(i + 1));
    const colour = make("input", { type: "color", id: `colour-${entry.value}`, value: entry.colour });
    colour.setAttribute("aria-label", `Colour of class ${i + 1}, ${entry.name}`);
    const name = make("input", { type: "text", id: `name-${entry.value}`, value: entry.name, maxLength: 60 });
    name.setAttribute("aria-label", `Name of class ${i + 1}`);
    const remove = make("button", { type: "button", textContent: "×", title: `Remove ${entry.name}` });
    remove.setAttribute("aria-label", `Remove class ${i + 1}, ${entry.name}`);
    remove.hidden = this.entries.length < 3;
    radio.addEventListener("change", () => this.choose(entry.value));
    colour.addEventListener("change", () => this.edit(entry.value, { colour: colour.value }));
    name.addEventListener("change", () => {
      if (name.value.trim()) this.edit(entry.value, { name: name.value.trim() });
      else name.value = entry.name;
    });
    name.addEventListener("keydown", (event) => { if (event.key === "Enter") name.blur(); });
    remove.addEventListener("click", () => this.onChange(this.entries.filter((other) => other.value !== entry.value)));
    item.classList.toggle("chosen", entry.value === this.chosen);
    item.append(label, colour, name, remove);
    return item;
  }

  choose(value) {
    this.chosen = value;
    [...this.list.children].forEach((item, i) => {
      const isChosen = this.entries[i].value === value;
      item.classList.toggle("chosen", isChosen);
      item.querySelector("[type=radio]").checked = isChosen;
    });
    this.onChoose(value);
  }

  /** Choose by place in the list. */
  chooseAt(i) {
    if (this.entries[i]) this.choose(this.entries[i].value);
  }

  edit(value, change) {
    this.onChange(this.entries.map((entry) => (entry.value === value ? { ...entry, ...change } : entry)));
  }

  add() {
    const values = new Set(this.entries.map((entry) => entry.value));
    let value = 0;
    while (values.has(value)) value++;
    const used = new Set(this.entries.map((entry) => entry.colour));
    const names = new Set(this.entries.map((entry) => entry.name));
    let number = this.entries.length + 1;
    while (names.has(`class ${number}`)) number++;
    const colour = COLOURS.find((one) => !used.has(one)) ?? COLOURS[value % COLOURS.length];
    this.chosen = value;
    this.onChange([...this.entries, { value, name: `class ${number}`, colour }]);
  }
}

function make(tag, fields) {
  return Object.assign(document.createElement(tag), fields);
}
