// The start page: folders of the machine where segkit runs, and projects that were opened lately.

import { at } from "./address.js";

const LOST = "The connection to segkit is lost. Start it again, and open the address that it prints.";
const OPENED = 409; // another tab has opened a project

const byId = (id) => document.getElementById(id);
let here = null; // the folder that is shown

const images = (n) => `${n} ${n === 1 ? "image" : "images"}`;

function button(text, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.addEventListener("click", onClick);
  const item = document.createElement("li");
  item.append(made);
  return item;
}

function fail(text) {
  byId("faults").replaceChildren();
  if (!text) return;
  const bar = document.createElement("div");
  bar.className = "fault";
  bar.textContent = text;
  byId("faults").append(bar);
}

async function show(path = "") {
  const answer = await fetch(at("folders", { path })).catch(() => null);
  if (answer === null) {
    fail(LOST);
    return;
  }
  if (answer.status === OPENED) location.reload();
  else if (!answer.ok) {
    fail((await answer.text()).trim());
  }
  if (!answer.ok) return;
  fail("");
  const listed = await answer.json();
  here = listed.path;
  byId("path").textContent = `${here} (${listed.n_images ? images(listed.n_images) : "no images; those of its folders are found"})`;
  const rows = listed.folders.map((folder) => button(`${folder.name}${folder.n_images ? `  –  ${images(folder.n_images)}` : ""}`, () => show(folder.path)));
  if (listed.parent) rows.unshift(button("↑ the folder above", () => show(listed.parent)));
  if (listed.n_more) rows.push(`and ${listed.n_more} more`);
  byId("folders").replaceChildren(...rows);
  byId("output").placeholder = `${here.split(/[\\/]/).filter(Boolean).pop() ?? "images"}-annotations`;
  byId("recent").hidden = !listed.recent.length;
  byId("recent-projects").replaceChildren(...listed.recent.map((one) => button(`${one.images}  –  labels in ${one.output}`, () => open(one.images, one.output, ""))));
}

async function open(folder, output, classes) {
  fail("");
  byId("opening").textContent = "Opening …";
  byId("open-folder").disabled = true;
  try {
    const answer = await fetch(at("open"), { method: "POST", body: JSON.stringify({ images: folder, output, classes }) });
    if (answer.ok || answer.status === OPENED) location.reload();
    else fail((await answer.text()).trim());
  } catch {
    fail(LOST);
  } finally {
    byId("opening").textContent = "";
    byId("open-folder").disabled = false;
  }
}

byId("open").addEventListener("submit", (event) => {
  event.preventDefault();
  if (here) open(here, byId("output").value.trim(), byId("class-names").value);
});
show();
