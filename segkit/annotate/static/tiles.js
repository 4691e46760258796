// Pictures in tiles of 512 pixels: those of the image, from the server; those of labels and prediction, from their values.

import { at } from "./address.js";

export const TILE = 512;
const MOST_BITMAPS = 160;
const RENDER_BUDGET = 9; // ms of a frame for the colours of new values

/** Tiles of the image's pyramid; the nearest coarser level shows until a tile is there. */
export class ImageTiles {
  constructor(view, onLoad, onFault) {
    Object.assign(this, { view, onLoad, onFault });
    this.bitmaps = new Map();
    this.query = "";
  }

  setImage(image) {
    this.image = image;
    this.clear();
  }

  setContrast(query) {
    if (query === this.query) return;
    this.query = query;
    this.clear();
  }

  clear() {
    for (const entry of this.bitmaps.values()) entry.bitmap?.close();
    this.bitmaps.clear();
  }

  draw(context, box) {
    if (!this.image) return;
    const scale = this.view.scale * this.view.ratio;
    const wanted = Math.min(this.image.levels - 1, Math.max(0, Math.floor(Math.log2(1 / scale) + 0.1)));
    context.imageSmoothingEnabled = scale < 3; // from there on single pixels shall be seen
    for (let level = this.image.levels - 1; level >= wanted; level--) {
      this.drawLevel(context, box, level, level === wanted || level === this.image.levels - 1);
    }
  }

  drawLevel(context, [top, left, bottom, right], level, load) {
    const span = TILE << level;
    for (let row = Math.floor(top / span); row * span < bottom; row++) {
      for (let column = Math.floor(left / span); column * span < right; column++) {
        const bitmap = this.find(level, row, column, load);
        if (!bitmap) continue;
        const from = [row * span, column * span];
        const to = [from[0] + (bitmap.height << level), from[1] + (bitmap.width << level)];
        const [x0, y0, x1, y1] = this.view.toDevice([...from, ...to]);
        context.drawImage(bitmap, x0, y0, x1 - x0, y1 - y0);
      }
    }
  }

  find(level, row, column, load) {
    const name = `${level}/${row}/${column}`;
    const entry = this.bitmaps.get(name);
    if (entry) {
      this.bitmaps.delete(name); // the most recently used goes last
      this.bitmaps.set(name, entry);
    } else if (load) this.load(name);
    return entry?.bitmap;
  }

  async load(name) {
    const entry = { bitmap: null };
    this.bitmaps.set(name, entry);
    try {
      const answer = await fetch(at(`tile/${encodeURIComponent(this.image.image)}/${name}`, this.query));
      if (!answer.ok) throw new Error((await answer.text()).trim());
      const bitmap = await createImageBitmap(await answer.blob());
      if (this.bitmaps.get(name) !== entry) {
        bitmap.close();
        return;
      }
      entry.bitmap = bitmap;
      this.evict();
      this.onLoad();
    } catch (error) {
      if (this.bitmaps.get(name) === entry) this.onFault(error);
    }
  }

  evict() {
    for (const [name, entry] of this.bitmaps) {
      if (this.bitmaps.size <= MOST_BITMAPS) break;
      if (!entry.bitmap || Number(name.split("/")[0]) === this.image.levels - 1) continue;
      entry.bitmap.close();
      this.bitmaps.delete(name);
    }
  }
}

/** Tiles that `render(pixels, top, left, height, width)` colours from values; only what changed is coloured anew. */
export class ValueTiles {
  constructor(view, render, onLate) {
    Object.assign(this, { view, render, onLate });
    this.setSize(0, 0);
  }

  setSize(height, width) {
    this.height = height;
    this.width = width;
    this.tiles = new Map();
  }

  /** The values in this box have changed. */
  mark([top, left, bottom, right]) {
    for (let row = Math.floor(top / TILE); row * TILE < bottom; row++) {
      for (let column = Math.floor(left / TILE); column * TILE < right; column++) {
        const tile = this.tile(row, column);
        const box = [
          Math.max(0, top - row * TILE), Math.max(0, left - column * TILE),
          Math.min(tile.height, bottom - row * TILE), Math.min(tile.width, right - column * TILE),
        ];
        const old = tile.dirty;
        tile.dirty = old
          ? [Math.min(old[0], box[0]), Math.min(old[1], box[1]), Math.max(old[2], box[2]), Math.max(old[3], box[3])]
          : box;
      }
    }
  }

  markAll() {
    for (const tile of this.tiles.values()) tile.dirty = [0, 0, tile.height, tile.width];
  }

  tile(row, column) {
    const name = row * 65536 + column;
    let tile = this.tiles.get(name);
    if (!tile) {
      const height = Math.min(TILE, this.height - row * TILE);
      const width = Math.min(TILE, this.width - column * TILE);
      const canvas = new OffscreenCanvas(width, height);
      tile = { canvas, context: canvas.getContext("2d"), height, width, dirty: null };
      this.tiles.set(name, tile);
    }
    return tile;
  }

  draw(context, [top, left, bottom, right]) {
    context.imageSmoothingEnabled = false;
    const start = performance.now();
    let late = false;
    for (let row = Math.floor(top / TILE); row * TILE < bottom; row++) {
      for (let column = Math.floor(left / TILE); column * TILE < right; column++) {
        const tile = this.tiles.get(row * 65536 + column);
        if (!tile) continue;
        if (tile.dirty && performance.now() - start < RENDER_BUDGET) this.colour(tile, row, column);
        late ||= tile.dirty !== null;
        const from = [row * TILE, column * TILE];
        const [x0, y0, x1, y1] = this.view.toDevice([...from, from[0] + tile.height, from[1] + tile.width]);
        context.drawImage(tile.canvas, x0, y0, x1 - x0, y1 - y0);
      }
    }
    if (late) this.onLate();
    return !late;
  }

  colour(tile, row, column) {
    const [top, left, bottom, right] = tile.dirty;
    tile.dirty = null;
    const data = new ImageData(right - left, bottom - top);
    const pixels = new Uint32Array(data.data.buffer);
    this.render(pixels, row * TILE + top, column * TILE + left, bottom - top, right - left);
    tile.context.putImageData(data, left, top);
  }
}

/** A colour as ImageData stores it. */
export function rgba(colour, alpha = 255) {
  const value = parseInt(colour.slice(1), 16);
  return ((alpha << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
}
