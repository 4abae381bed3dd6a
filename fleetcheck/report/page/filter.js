// Which hosts are shown. A filter of hosts reads as node sets do: commas, ranges in brackets, * and ?, or a part of a name.

const RANK = ["info", "warning", "error", "critical"];
const KEYS = ["q", "verdict", "severity", "rule", "group"];
const FIRST = "verdict";
const KINDS = {
  "not-checked": (entry) => !entry.seen,
  "needs-work": (entry) => entry.verdict !== "ok" && entry.verdict !== "skipped",
  unseen: (entry) => !entry.seen && entry.verdict !== "skipped",
  warned: (entry) => entry.verdict === "ok" && entry.rank > 0,
  clean: (entry) => entry.verdict === "ok" && entry.rank <= 0,
};

// What the address's fragment says, so that a link tells what was seen.
function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  const found = Object.fromEntries(KEYS.map((key) => [key, given.get(key) ?? ""]));
  const sort = given.get("sort") ?? FIRST;
  const host = given.get("host") ?? "";
  return { ...found, sort: sort.replace(/^-/, ""), down: sort.startsWith("-"), host, at: host && (given.get("at") ?? "") };
}

function written(state) {
  const told = new URLSearchParams(KEYS.filter((key) => state[key]).map((key) => [key, state[key]]));
  if (state.sort !== FIRST || state.down) told.set("sort", (state.down ? "-" : "") + state.sort);
  if (state.host) told.set("host", state.host);
  if (state.host && state.at) told.set("at", state.at);
  return `#${told}`;
}

// Pieces between commas, those within brackets apart.
function pieces(text) {
  return text.match(/(?:\[[^\]]*\]|[^,])+/g)?.map((piece) => piece.trim()).filter(Boolean) ?? [];
}

function hostFilter(text) {
  const any = pieces(text.toLowerCase()).map((piece) => {
    const words = piece.match(/(?:\[[^\]]*\]|\S)+/g).map(wordFilter);
    return (entry) => words.every((fits) => fits(entry));
  });
  return any.length ? (entry) => any.some((fits) => fits(entry)) : () => true;
}

// A pattern fits a whole name, or all that comes before one of its dots; a plain word fits anywhere.
function wordFilter(word) {
  if (!/[*?]|\[[\d,-]+\]/.test(word)) return (entry) => entry.text.includes(word);
  const ranges = [];
  const source = word.replace(/\[([\d,-]+)\]|\*+|\?|[^*?[]+|\[/g, (part, range) => {
    if (range) return ranges.push(range.split(",").map((one) => one.split("-"))), "(\\d+)";
    return part.startsWith("*") ? ".*" : part === "?" ? "." : part.replace(/[^\w]/g, (char) => `\\u{${char.codePointAt(0).toString(16)}}`);
  });
  const pattern = new RegExp(`^${source}(?:$|\\.)`, "u");
  return ({ lower, address }) => [lower, address].some((text) => {
    const found = pattern.exec(text);
    return found !== null && ranges.every((range, place) => within(range, found[place + 1]));
  });
}

// As in a node set, 001-005 holds 003 and not 3.
function within(range, digits) {
  const number = Number(digits);
  return range.some(([low, high = low]) => {
    const padded = /^0\d/.test(low);
    return number >= Number(low) && number <= Number(high) && (padded ? digits.length === low.length : !/^0\d/.test(digits));
  });
}

function filterOf({ q, verdict, severity, rule, group }, cell, groups) {
  const host = hostFilter(q);
  const kind = Object.hasOwn(KINDS, verdict) ? KINDS[verdict] : (entry) => entry.verdict === verdict;
  const number = String(groups.indexOf(group));
  return (entry) =>
    host(entry) &&
    (!verdict || kind(entry)) &&
    (!severity || entry.rank >= RANK.indexOf(severity)) &&
    (!rule || cell(entry, rule) !== "") &&
    (!group || entry.groups.includes(number));
}
