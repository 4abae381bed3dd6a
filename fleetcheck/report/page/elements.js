// Elements from texts. What a host says enters the page as text alone, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

function make(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function draw(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function byId(name) {
  return document.getElementById(name);
}

// One character that acts, or that no one sees, becomes its escape, as in the other formats.
function clean(text, limit = 2000) {
  const shown = text.slice(0, limit).replace(/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, (char) => {
    const code = char.codePointAt(0).toString(16);
    return code.length < 3 ? `\\x${code.padStart(2, "0")}` : `\\u${code.padStart(4, "0")}`;
  });
  return text.length > limit ? `${shown}…` : shown;
}

function badge(severity, ...more) {
  return make("span", { class: ["badge", severity, ...more].join(" ") }, severity);
}

// A place where a long path or name may break, so that it breaks nowhere else.
function soft(text) {
  return text.split(/(?<=\S[/_,=:])(?=\S)/).flatMap((piece) => [piece, make("wbr")]).slice(0, -1);
}

// Copies a command; on a page of a file, where a browser may keep its clipboard from pages, as a selection is copied.
function copier(text) {
  const made = make("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}` }, "Copy");
  const say = (word) => {
    made.textContent = word;
    made.setAttribute("aria-label", `${word}: ${text}`);
  };
  made.addEventListener("click", async (event) => {
    event.preventDefault();
    const done = await navigator.clipboard?.writeText(text).then(() => true, () => false);
    const kept = done || selected(text, made);
    say(kept ? "Copied" : "Not copied");
    setTimeout(say, 2000, "Copy");
  });
  return made;
}

function selected(text, beside) {
  const field = make("textarea", { class: "quiet", readonly: true });
  field.value = text;
  beside.after(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  beside.focus();
  return done;
}
