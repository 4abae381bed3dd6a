// One host: a sentence, the findings, everything that is known, and what was not examined, as `fleetcheck show` has it.

function data() {
  data.read ??= JSON.parse(byId("data").textContent);
  return data.read;
}

// Of a longer list, each item is closed at first.
const OPEN = 3;
const unpacked = new Map();

async function hostAt(place) {
  const { part, parts } = data();
  const number = Math.floor(place / part);
  if (!unpacked.has(number)) unpacked.set(number, inflate(parts[number]));
  return (await unpacked.get(number))[place % part];
}

async function inflate(text) {
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

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
  return make("dl", { class: short ? "facts short" : "facts" }, ...entries.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
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

// What is the same in each of several rows stands once, before them.
function table(rows, name) {
  const keys = [...new Set(rows.flatMap((row) => known(row).map(({ key }) => key)))];
  const cells = new Map(keys.map((key) => [key, rows.map((row) => (isEmpty(row[key]) ? "–" : value(key, row[key])))]));
  const alike = rows.length > 1 ? keys.filter((key) => new Set(cells.get(key)).size === 1) : [];
  const columns = keys.filter((key) => !alike.includes(key));
  const title = (key) => data().about.said[key] ?? label(key);
  const parts = columns.length ? [make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
    make("table", {}, make("thead", {}, make("tr", {}, ...columns.map((key) => make("th", { scope: "col" }, title(key))))),
      make("tbody", {}, ...rows.map((_, place) => make("tr", {}, ...columns.map((key) => make("td", {}, cells.get(key)[place]))))))) ] : [];
  if (alike.length) parts.push(make("p", { class: "each" }, rows.length > 2 ? `Each of ${rows.length}:` : "Both:"), dl(alike.map((key) => [title(key), cells.get(key)[0]])));
  return parts;
}

function remedy(said) {
  if (!said.remedy.length) return null;
  return make("div", { class: "remedy" }, make("h4", {}, "Remedy ", make("span", {}, said.where)),
    make("ol", {}, ...said.remedy.map((step) => make("li", {}, make("code", {}, step)))));
}

function finding(group) {
  const said = group.said.flatMap((one) => [
    make("p", { class: "message" }, one.severity === group.severity ? "" : badge(one.severity), one.severity === group.severity ? "" : " ", one.message),
    dl([["environment", one.venv], ["GPU", one.gpu], ["expected", one.expected], ["seen", one.seen], ["basis", one.basis === "resolved" ? null : one.basis]].filter(([, text]) => text)),
    remedy(one),
  ]);
  const follows = group.follows.map((one) => make("div", { class: "follows" }, make("p", {}, "Explains ", badge(one.severity), " ", make("b", {}, one.rule)), ...one.messages.map((message) => make("p", { class: "message" }, message))));
  const see = group.references.map((reference) => make("p", { class: "more" }, "See ", make("span", { class: "address" }, reference)));
  return make("article", { class: `finding ${group.severity}` }, make("h4", {}, badge(group.severity), " ", group.rule), ...said, ...follows, ...see);
}

function block(title, ...parts) {
  return make("section", { class: "block" }, make("h3", {}, title), ...parts);
}

function sections(host) {
  const { look, sections: named, run } = data().about;
  const members = Object.keys(host).filter((name) => name !== "name" && !look.includes(name) && !isEmpty(host[name]));
  const order = [...Object.keys(named).filter((name) => members.includes(name)), ...members.filter((name) => !(name in named))];
  const shown = order.map((name) => {
    let thing = host[name];
    if (name === "gpus" && Object.keys(thing.links ?? {}).length) {
      const { links, p2p, ...rest } = thing;
      thing = rest;
    }
    const title = named[name] ?? label(name).replace(/^./, (first) => first.toUpperCase());
    return block(title, ...(Array.isArray(thing) ? list(thing, 4, title) : isRecord(thing) ? facts(thing, 4) : [make("p", {}, value(name, thing))]));
  });
  return [...shown, block("Look", ...facts({ ...Object.fromEntries(look.map((name) => [name, host[name]])), ...run }, 4))];
}

function hostView({ sentence, findings, waived, unexamined, facts: host }, room) {
  const drawing = topology(host.gpus ?? {}, room);
  return [
    make("p", { class: "sentence" }, sentence),
    findings.length ? block("Findings", ...findings.map(finding)) : null,
    waived.length ? block("Waived", make("ul", { class: "plain" }, ...waived.map((one) => make("li", {}, badge("waived"), " ", make("b", {}, one.rule), ` until ${one.until}, ${one.reason}: ${one.message}`)))) : null,
    drawing ? block("Topology", drawing) : null,
    ...sections(host),
    unexamined.length ? block("Not examined", make("ul", { class: "plain" }, ...unexamined.map((line) => make("li", {}, line)))) : null,
  ].filter((part) => part !== null);
}
