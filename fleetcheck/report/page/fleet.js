// The matrix: filter, sort, open a host. What is shown stands in the address's fragment, so that a link tells it.

const matrix = byId("matrix");
const rows = matrix ? [...matrix.tBodies[0].rows].map(rowOf) : [];
const grid = matrix && gridOf(matrix, headed);
const heads = grid?.heads ?? [];
const columns = new Map(heads.map((head, place) => [head.dataset.key, place]));
const groups = matrix ? [...byId("group").options].slice(1).map(({ value }) => value) : [];
const collator = new Intl.Collator("en", { numeric: true });
let state = read();
let shown = rows;
let opener = null;

function rowOf(row, place) {
  const link = row.cells[0].firstElementChild;
  const { v, s, g, a } = row.dataset;
  const name = link.textContent;
  const [lower, address] = [name.toLowerCase(), a.toLowerCase()];
  const seen = v === "ok" || v === "findings";
  return { row, place, link, name, lower, address, text: `${lower} ${address}`, verdict: v, seen, rank: RANK.indexOf(s), groups: g.split(" ") };
}

function cell(entry, key) {
  // The last cell of a row ends with its line.
  return entry.row.cells[columns.get(key)]?.textContent.trim() ?? "";
}

function compared(one, other) {
  const { sort } = state;
  if (sort === FIRST || !columns.has(sort)) return one.place - other.place;
  if (isRule(heads[columns.get(sort)])) {
    const rank = (entry) => RANK.indexOf(cell(entry, sort).split(" ")[0]) + (cell(entry, sort) === "waived" ? 0.5 : 0);
    return rank(other) - rank(one) || one.place - other.place;
  }
  return collator.compare(cell(one, sort), cell(other, sort)) || one.place - other.place;
}

function isRule(head) {
  return head.classList.contains("r");
}

function show() {
  if (!matrix) return;
  for (const key of KEYS) choose(byId(key), state[key]);
  shown = rows.filter(filterOf(state, cell, groups)).sort(compared);
  if (state.down) shown.reverse();
  const order = shown.map(({ row }) => row);
  const body = matrix.tBodies[0];
  if (order.length !== body.rows.length || order.some((row, place) => row !== body.rows[place])) body.replaceChildren(...order);
  for (const [key, place] of columns) {
    const sorted = key === state.sort;
    const worst = key === FIRST || isRule(heads[place]);
    if (sorted) heads[place].setAttribute("aria-sort", state.down === worst ? "ascending" : "descending");
    else heads[place].removeAttribute("aria-sort");
    heads[place].classList.toggle("chosen", key === state.rule);
  }
  for (const { link } of rows) link.tabIndex = -1;
  if (shown.length) shown[0].link.tabIndex = 0;
  const filtered = KEYS.some((key) => state[key]);
  byId("count").textContent = told();
  byId("clear").disabled = !filtered && state.sort === FIRST && !state.down;
  byId("none").hidden = shown.length > 0;
  matrix.closest(".frame").hidden = !shown.length;
  grid.narrow(shown.length && shown.length < rows.length ? shown : null);
  paper(filtered);
}

// On paper stand the hosts that need a look, unless all are asked for, or a filter has chosen.
function paper(filtered) {
  const some = !filtered && !byId("all").checked && rows.some(({ verdict, rank }) => verdict !== "ok" || rank > 0);
  const left = rows.filter(({ verdict, rank }) => verdict === "ok" && rank <= 0).length;
  document.documentElement.classList.toggle("sparing", some && left > 0);
  byId("left").textContent = some && left ? `Without ${left} ${left === 1 ? "host that is" : "hosts that are"} ok and without warnings.` : "";
}

// A link may name a rule or a group that is not in this report: no host has it, and the choice says which it was.
function choose(control, value) {
  if (control.options && ![...control.options].some((one) => one.value === value)) {
    control.append(make("option", { value }, clean(value, 100)));
  }
  control.value = value;
}

function told() {
  const all = rows.length === 1 ? "1 host" : `${rows.length} hosts`;
  const some = shown.length === rows.length ? all : `${shown.length} of ${all}`;
  const order = state.sort === FIRST ? (state.down ? "worst last" : "worst first") : `by ${state.sort}${state.down ? ", reversed" : ""}`;
  return `${some}, ${order}`;
}

function change(some, how = "replaceState") {
  state = { ...state, ...some };
  history[how](null, "", written(state));
  show();
  return open();
}

function cleared() {
  change({ ...Object.fromEntries(KEYS.map((key) => [key, ""])), sort: FIRST, down: false });
  byId("q").focus();
}

// A rule's heading shows its hosts, any other sorts.
function headed(head) {
  const { key } = head.dataset;
  if (isRule(head)) change({ rule: state.rule === key ? "" : key });
  else change({ sort: key, down: state.sort === key && !state.down });
}

async function open() {
  const dialog = byId("host");
  const entry = rows.find(({ name }) => name === state.host);
  byId("astray").hidden = !state.host || Boolean(entry);
  if (!entry) {
    byId("astray").textContent = state.host ? `This report has no host ${clean(state.host, 200)}.` : "";
    if (dialog.open) dialog.close();
    return;
  }
  if (dialog.open && dialog.dataset.host === entry.name) return;
  dialog.dataset.host = entry.name;
  opener = entry.link;
  byId("host-title").textContent = entry.name;
  const place = shown.indexOf(entry);
  byId("previous").disabled = place < 1;
  byId("next").disabled = place < 0 || place === shown.length - 1;
  if (!dialog.open) dialog.showModal();
  const view = byId("host-facts");
  const parts = await hostAt(entry.place).then(
    (host) => hostView(host, view.clientWidth - 2),
    (error) => [make("p", { class: "notice" }, `The facts cannot be unpacked by this browser: ${error.message}. Use fleetcheck show.`)],
  );
  if (dialog.dataset.host !== entry.name) return;
  view.replaceChildren(...parts);
  dialog.scrollTop = 0;
  // What is scrolled to stands below the bar, which takes two lines for a long name.
  dialog.style.scrollPaddingTop = `${dialog.firstElementChild.offsetHeight + 12}px`;
  byId("host-title").focus();
  const found = state.at && [...view.querySelectorAll("[data-rule]")].find((one) => one.dataset.rule === state.at);
  if (found) {
    // The first of a part brings its heading along, which would else be cut by the bar.
    (found.previousElementSibling?.localName === "h3" ? found.parentElement : found).scrollIntoView();
    found.focus({ preventScroll: true });
  }
}

function step(by) {
  const next = shown[shown.findIndex(({ name }) => name === state.host) + by];
  if (next) change({ host: next.name, at: "" });
}

function closed() {
  byId("host").removeAttribute("data-host");
  if (state.host) change({ host: "", at: "" });
  if (opener?.isConnected) reach(opener);
}

// Whoever is reached by key is never under the headings that stay.
function reach(link) {
  link.focus({ preventScroll: true });
  const row = link.closest("tr");
  row.style.scrollMargin = `${grid.height()}px 0 8px`;
  row.scrollIntoView({ block: "nearest" });
}

function first() {
  if (shown.length) reach(shown[0].link);
}

function move(event) {
  const here = shown.findIndex(({ link }) => link === document.activeElement);
  if (here >= 0 && ["ArrowRight", "ArrowLeft"].includes(event.key)) grid.aside(event.key === "ArrowRight" ? 120 : -120);
  const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: shown.length - 1, PageDown: Math.min(here + 20, shown.length - 1), PageUp: Math.max(here - 20, 0) }[event.key];
  if (here < 0 || to === undefined || !shown[to]) return;
  event.preventDefault();
  shown[here].link.tabIndex = -1;
  shown[to].link.tabIndex = 0;
  reach(shown[to].link);
}

function themes() {
  const button = byId("theme");
  const root = document.documentElement;
  const name = () => root.dataset.theme ?? "system";
  const tell = () => (button.textContent = `Theme: ${name()}`);
  button.hidden = false;
  tell();
  button.addEventListener("click", () => {
    const next = { system: "dark", dark: "light", light: "system" }[name()];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    tell();
    try {
      localStorage.setItem("fleetcheck-theme", next);
    } catch {
      // Nothing is kept where the reader's browser keeps nothing.
    }
  });
}

function printing() {
  let printed = [];
  addEventListener("beforeprint", () => {
    printed = [...document.querySelectorAll("details:not([open])")];
    for (const one of printed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of printed) one.open = false;
  });
}

// A link to a part of the page leaves the filter as it is; the fragment tells the filter alone.
function led(event) {
  const link = event.target.closest("a[href^='#']");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || link.hash.includes("=")) return;
  event.preventDefault();
  if (link.id === "skip") return first();
  const part = byId(link.hash.slice(1));
  part.scrollIntoView();
  if (part !== document.documentElement) part.querySelector("h2").focus({ preventScroll: true });
}

function began() {
  const form = byId("filters");
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => KEYS.includes(event.target.id) && change({ [event.target.id]: event.target.value }));
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    cleared();
  });
  byId("again").addEventListener("click", cleared);
  byId("all").addEventListener("change", show);
  byId("further").addEventListener("click", ({ target }) => {
    target.setAttribute("aria-expanded", String(form.classList.toggle("open")));
  });
  matrix.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
    event.preventDefault();
    const mark = event.target.closest("td.r");
    const at = mark ? heads[mark.cellIndex].dataset.key : "";
    change({ host: rows.find((entry) => entry.row === row).name, at }, "pushState");
  });
  matrix.tBodies[0].addEventListener("keydown", move);
  byId("host").addEventListener("close", closed);
  byId("host").addEventListener("click", (event) => event.target === byId("host") && byId("host").close());
  byId("close").addEventListener("click", () => byId("host").close());
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || byId("host").open || event.target.closest("input, select")) return;
    event.preventDefault();
    byId("q").focus();
  });
  addEventListener("hashchange", () => {
    if (location.hash && !location.hash.includes("=")) return;
    state = read();
    show();
    open();
    if (KEYS.some((key) => state[key]) && !state.host) byId("fleet").scrollIntoView();
  });
  show();
  open();
}

themes();
printing();
for (const command of document.querySelectorAll("main .command, header .command")) command.after(copier(command.textContent));
document.body.addEventListener("click", led);
if (matrix) began();
