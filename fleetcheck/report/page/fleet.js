// The matrix: filter, sort, open a host. What is shown stands in the address's fragment, so that a link tells it.

const RANK = ["info", "warning", "error", "critical"];
const KEYS = ["q", "verdict", "severity", "rule", "group"];
const FIRST = "verdict";
const matrix = byId("matrix");
const rows = matrix ? [...matrix.tBodies[0].rows].map(rowOf) : [];
const heads = matrix ? [...matrix.tHead.rows[0].cells] : [];
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
  return { row, place, link, name, text: `${name} ${a}`.toLowerCase(), verdict: v, rank: RANK.indexOf(s), groups: g.split(" ") };
}

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = Object.fromEntries(KEYS.map((key) => [key, given.get(key) ?? ""]));
  const sort = given.get("sort") ?? FIRST;
  return { ...found, sort: sort.replace(/^-/, ""), down: sort.startsWith("-"), host: given.get("host") ?? "" };
}

function written() {
  const told = new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  if (state.sort !== FIRST || state.down) told.set("sort", (state.down ? "-" : "") + state.sort);
  if (state.host) told.set("host", state.host);
  return `#${told}`;
}

function matches(entry) {
  const { q, verdict, severity, rule, group } = state;
  const seen = entry.verdict === "ok" || entry.verdict === "findings";
  return (
    q.toLowerCase().split(/\s+/).every((word) => entry.text.includes(word)) &&
    (!verdict || entry.verdict === verdict || (verdict === "not-checked" && !seen)) &&
    (!severity || entry.rank >= RANK.indexOf(severity)) &&
    (!rule || cell(entry, rule) !== "") &&
    (!group || entry.groups.includes(String(groups.indexOf(group))))
  );
}

function cell(entry, key) {
  return entry.row.cells[columns.get(key)]?.textContent ?? "";
}

function compared(one, other) {
  const { sort } = state;
  if (sort === FIRST || !columns.has(sort)) return one.place - other.place;
  if (heads[columns.get(sort)].classList.contains("r")) {
    const rank = (entry) => RANK.indexOf(cell(entry, sort).split(" ")[0]) + (cell(entry, sort) === "waived" ? 0.5 : 0);
    return rank(other) - rank(one) || one.place - other.place;
  }
  return collator.compare(cell(one, sort), cell(other, sort)) || one.place - other.place;
}

function show() {
  if (!matrix) return;
  for (const key of KEYS) choose(byId(key), state[key]);
  shown = rows.filter(matches).sort(compared);
  if (state.down) shown.reverse();
  const order = shown.map(({ row }) => row);
  const body = matrix.tBodies[0];
  if (order.length !== body.rows.length || order.some((row, place) => row !== body.rows[place])) body.replaceChildren(...order);
  for (const [key, place] of columns) {
    const sorted = key === state.sort;
    const worst = key === FIRST || heads[place].classList.contains("r");
    if (sorted) heads[place].setAttribute("aria-sort", state.down === worst ? "ascending" : "descending");
    else heads[place].removeAttribute("aria-sort");
    heads[place].classList.toggle("chosen", key === state.rule);
  }
  for (const { link } of rows) link.tabIndex = -1;
  if (shown.length) shown[0].link.tabIndex = 0;
  byId("count").textContent = told();
  byId("clear").disabled = !KEYS.some((key) => state[key]) && state.sort === FIRST && !state.down;
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
  history[how](null, "", written());
  show();
  return open();
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
  byId("host-title").focus();
}

function step(by) {
  const next = shown[shown.findIndex(({ name }) => name === state.host) + by];
  if (next) change({ host: next.name });
}

function closed() {
  byId("host").removeAttribute("data-host");
  if (state.host) change({ host: "" });
  if (opener?.isConnected) opener.focus();
}

function move(event) {
  const here = shown.findIndex(({ link }) => link === document.activeElement);
  const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: shown.length - 1, PageDown: Math.min(here + 20, shown.length - 1), PageUp: Math.max(here - 20, 0) }[event.key];
  if (here < 0 || to === undefined || !shown[to]) return;
  event.preventDefault();
  shown[here].link.tabIndex = -1;
  shown[to].link.tabIndex = 0;
  shown[to].link.focus();
}

function sortable(head) {
  const button = make("button", { type: "button" }, ...head.childNodes);
  button.addEventListener("click", () => {
    const { key } = head.dataset;
    change({ sort: key, down: state.sort === key && !state.down });
  });
  head.replaceChildren(button);
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

function begin() {
  themes();
  let printed = [];
  addEventListener("beforeprint", () => {
    printed = [...document.querySelectorAll("details:not([open])")];
    for (const one of printed) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of printed) one.open = false;
  });
  if (!matrix) return;
  heads.forEach(sortable);
  // A heading that ends between two pixels would have its rule drawn now on one, now on the other.
  matrix.tHead.rows[0].style.height = `${Math.ceil(matrix.tHead.offsetHeight)}px`;
  const form = byId("filters");
  form.hidden = false;
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", (event) => change({ [event.target.id]: event.target.value }));
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    change({ ...Object.fromEntries(KEYS.map((key) => [key, ""])), sort: FIRST, down: false });
    byId("q").focus();
  });
  matrix.tBodies[0].addEventListener("click", (event) => {
    const row = event.target.closest("tr");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
    event.preventDefault();
    change({ host: rows.find((entry) => entry.row === row).name }, "pushState");
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
    state = read();
    show();
    open();
    if (state.rule && !state.host) byId("fleet").scrollIntoView();
  });
  show();
  open();
}

begin();
