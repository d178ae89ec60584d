// Draws the picture of a page that `tidegate trace` has written, as an SVG: node draw_trace.js PAGE > PICTURE.
// The page's script runs with a stub of the browser's DOM, in which all letters have the same width.
"use strict";
const html = require("fs").readFileSync(process.argv[2], "utf-8");
const escaped = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
const SVG_TAGS = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "defs", "clipPath", "pattern"]);

class Element {
  constructor(tag) {
    Object.assign(this, {tag, attributes: {}, children: [], listeners: {}, dataset: {}, style: {}, text: "", className: "", clientWidth: 860});
    this.classList = {toggle() {}, add() {}, remove() {}};
    this.tBodies = tag === "table" ? [new Element("tbody")] : [];
    if (tag === "table") this.tHead = new Element("thead");
  }
  set textContent(text) { this.children = []; this.text = text; }
  get textContent() { return this.text; }
  get firstChild() { return this.children[0]; }
  get lastChild() { return this.children.at(-1); }
  setAttribute(name, value) { this.attributes[name] = value; }
  append(...parts) { this.children.push(...parts); }
  replaceChildren(...parts) { this.children = parts; }
  addEventListener() {}
  getBoundingClientRect() { return {left: 0, top: 0, width: 860, height: 430}; }
  querySelectorAll(selector) {
    const name = selector.replace(".", "");
    return this.children.flatMap(child => child instanceof Element ? [...(child.attributes.class === name ? [child] : []), ...child.querySelectorAll(selector)] : []);
  }
  get outerHTML() {
    if (!SVG_TAGS.has(this.tag)) return "";
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escaped(typeof value === "number" ? Number(value.toFixed(2)) : value)}"`);
    return `<${this.tag}${attributes.join("")}>${escaped(this.text)}${this.children.map(child => child instanceof Element ? child.outerHTML : escaped(child)).join("")}</${this.tag}>`;
  }
}

const elements = new Map();
const elementOf = id => elements.get(id) || elements.set(id, new Element(id === "list table" ? "table" : id === "chart" ? "svg" : "div")).get(id);
elementOf("data").text = /<script[^>]*id="data"[^>]*>([^]*?)<\/script>/.exec(html)[1];
const browser = {
  document: {
    getElementById: elementOf, querySelector: selector => elementOf(selector.replace("#", "")), querySelectorAll: () => [], documentElement: new Element("html"),
    createElement: tag => Object.assign(new Element(tag), tag === "canvas" ? {getContext: () => ({measureText: text => ({width: 6.3 * text.length})})} : {}),
    createElementNS: (_, tag) => new Element(tag),
  },
  location: {hash: ""}, innerWidth: 900, innerHeight: 500, scrollY: 0, matchMedia: () => ({matches: false}), addEventListener() {},
  Option: class extends Element { constructor(text) { super("option"); this.text = text; } },
};
const scripts = [...html.matchAll(/<script>([^]*?)<\/script>/g)].map(found => found[1]).join("\n");
new Function(...Object.keys(browser), scripts)(...Object.values(browser));

const css = /<style>([^]*?)<\/style>/.exec(html)[1];
const colours = /:root \{([^]*?)\}/.exec(css)[1].replace(/color-scheme: light;/, "").trim();
const rules = css.split("\n").filter(line => line.startsWith("#chart ")).join("\n").replace(/#chart /g, "");
const chart = elementOf("chart"), size = chart.attributes.viewBox.split(" ");
console.log(`<svg xmlns="http://www.w3.org/2000/svg" width="${size[2]}" height="${size[3]}" viewBox="${chart.attributes.viewBox}">` +
  `<style>svg { ${colours.replace(/\s+/g, " ")} }\n${rules}</style><rect width="100%" height="100%" fill="#ffffff"/>${chart.children.map(child => child.outerHTML).join("")}</svg>`);
