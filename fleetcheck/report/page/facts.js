// All that is known of a host as lists and tables: the records are walked as they are, so that a new fact is shown.

// Of a longer list, each item is closed at first.
const OPEN = 3;
// Of more rows than this, a column that is alike wherever it is known stands before the table.
const MANY = 3;
// Characters from which on a cell may break.
const LONG = 30;

function isRecord(thing) {
  return typeof thing === "object" && thing !== null && !Array.isArray(thing);
}

function isNested(thing) {
  return Array.isArray(thing) ? thing.some((item) => typeof item === "object" && item !== null) : isRecord(thing);
}

function isEmpty(thing) {
  return thing === null || thing === undefined || thing === "" || (typeof thing === "object" && !Object.keys(thing).length);
}

function label(name) {
  return clean(name, 100).replaceAll("_", " ");
}

function value(name, thing) {
  if (typeof thing === "boolean") return name in data().about.said ? (thing ? "on" : "off") : thing ? "yes" : "no";
  if (/(^|[_ ])(at|time)$/.test(name) && typeof thing === "number" && thing > 0 && thing < 1e11) {
    return new Date(thing * 1000).toISOString().replace(/\.\d+Z$/, "Z");
  }
  if (Array.isArray(thing)) return clean(thing.map((item) => (typeof item === "object" ? JSON.stringify(item) : String(item))).join(", "));
  return clean(typeof thing === "object" ? JSON.stringify(thing) : String(thing));
}

// The members of a record go by their labels, those of a mapping by their own keys.
function known(record, whose = "") {
  const own = data().about.mappings.includes(whose);
  const name = (key) => (own ? clean(key, 200) : (data().about.said[key] ?? label(key)));
  return Object.entries(record).filter(([, item]) => !isEmpty(item)).map(([key, item]) => ({ key, item, name: name(key) }));
}

function dl(entries) {
  const short = entries.length > 5 && entries.every(([name, text]) => name.length < 26 && text.length < 46);
  return make("dl", { class: short ? "facts short" : "facts" }, ...entries.map(([name, text]) => make("div", {}, make("dt", {}, ...soft(name)), make("dd", {}, ...soft(text)))));
}

function facts(record, level, whose) {
  const members = known(record, whose);
  const plain = members.filter(({ item }) => !isNested(item));
  const parts = plain.length ? [dl(plain.map(({ key, name, item }) => [name, value(key, item)]))] : [];
  for (const { key, name, item } of members.filter((member) => isNested(member.item))) {
    parts.push(make("section", {}, make(`h${Math.min(level, 6)}`, {}, name), ...(Array.isArray(item) ? list(item, level + 1, name) : facts(item, level + 1, key))));
  }
  return parts.length ? parts : [make("p", { class: "none" }, "Nothing is known.")];
}

function list(items, level, name) {
  const shown = items.filter((item) => !isEmpty(item));
  if (shown.length && shown.every((item) => isRecord(item) && !Object.values(item).some(isNested))) return table(shown, name);
  return shown.map((item) => {
    if (!isRecord(item)) return make("p", {}, value("", item));
    const title = ["path", "name", "pid"].find((key) => !isEmpty(item[key]));
    const { [title]: headed, ...rest } = item;
    const name = title === "pid" ? `pid ${value("", headed)}` : title ? value("", headed) : "–";
    const heading = make(`h${Math.min(level, 6)}`, { class: "title" }, name);
    if (shown.length <= OPEN) return make("section", { class: "item" }, heading, ...facts(rest, level + 1));
    return make("details", { class: "item" }, make("summary", {}, heading), ...facts(rest, level + 1));
  });
}

// What is the same in each of several rows stands once, before them; of many, what is the same in all that have it.
function table(rows, name) {
  const keys = [...new Set(rows.flatMap((row) => known(row).map(({ key }) => key)))];
  const cells = new Map(keys.map((key) => [key, rows.map((row) => (isEmpty(row[key]) ? null : value(key, row[key])))]));
  const different = (key) => new Set(cells.get(key).filter((text) => text !== null || rows.length <= MANY)).size;
  const some = (key) => cells.get(key).filter((text) => text !== null).length;
  const alike = rows.length > 1 ? keys.filter((key) => different(key) === 1 && some(key) > rows.length / 2) : [];
  const columns = keys.filter((key) => !alike.includes(key));
  const title = (key) => data().about.said[key] ?? label(key);
  const cell = (text) => make("td", { class: text && text.length > LONG ? "long" : null }, ...(text === null ? ["–"] : soft(text)));
  const each = [...new Set(alike.map(some))].sort((one, other) => other - one).flatMap((count) => [
    make("p", { class: "each" }, count < rows.length ? `Each of the ${count} of which it is known:` : count > 2 ? `Each of ${count}:` : "Both:"),
    dl(alike.filter((key) => some(key) === count).map((key) => [title(key), cells.get(key).find((text) => text !== null)])),
  ]);
  if (!columns.length) return each;
  const head = make("tr", {}, ...columns.map((key) => make("th", { scope: "col" }, title(key))));
  const body = rows.map((_, place) => make("tr", {}, ...columns.map((key) => cell(cells.get(key)[place]))));
  return [...each, make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)))];
}
