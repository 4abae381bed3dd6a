// One host: a sentence, the findings, everything that is known, and what was not examined, as `fleetcheck show` has it.

function data() {
  data.read ??= JSON.parse(byId("data").textContent);
  return data.read;
}

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

function steps(given) {
  return make("ol", {}, ...given.map(({ lead, commands, note, mark }) => make("li", {},
    lead ? make("p", {}, ...soft(lead)) : null,
    ...commands.flatMap((command) => [make("code", { class: "command" }, command), copier(command)]),
    note ? make("p", { class: "note" }, note) : null,
    mark ? make("p", { class: "mark" }, mark) : null)));
}

function remedy(said) {
  if (!said.remedy.length) return null;
  return make("div", { class: "remedy" }, make("h4", {}, "Remedy ", make("span", {}, said.where)), steps(said.remedy));
}

function reference(text) {
  if (!/^https:\/\/[\w.-]+(:\d{1,5})?(\/[\w.~\/#?&=%+-]*)?$/.test(text)) return make("span", { class: "address" }, text);
  return make("a", { class: "address", href: text, target: "_blank", rel: "noopener noreferrer" }, text);
}

function finding(group) {
  const said = group.said.flatMap((one) => [
    make("p", { class: "message" }, one.severity === group.severity ? "" : badge(one.severity), one.severity === group.severity ? "" : " ", ...soft(one.message)),
    dl([["environment", one.venv], ["GPU", one.gpu], ["expected", one.expected], ["seen", one.seen], ["basis", one.basis === "resolved" ? null : one.basis]].filter(([, text]) => text)),
    remedy(one),
  ]);
  const follows = group.follows.map((one) => make("div", { class: "follows", "data-rule": one.rule, tabindex: -1 }, make("p", {}, "Explains ", badge(one.severity), " ", named("b", one.rule)), ...one.messages.map((message) => make("p", { class: "message" }, ...soft(message)))));
  const see = group.references.map((text) => make("p", { class: "more" }, "See ", reference(text)));
  const summary = data().about.rules[group.rule];
  return make("article", { class: `finding ${group.severity}`, "data-rule": group.rule, tabindex: -1 },
    make("h4", {}, badge(group.severity), " ", named("span", group.rule)), summary ? make("p", { class: "what" }, summary) : null, ...said, ...follows, ...see);
}

function named(element, rule) {
  return make(element, { title: data().about.rules[rule] ?? null }, rule);
}

function block(title, ...parts) {
  return make("section", { class: "block" }, make("h3", { tabindex: -1 }, title), ...parts);
}

// Raw facts are closed at first: who reads on opens what he looks for.
function folded(title, ...parts) {
  return make("details", { class: "block" }, make("summary", {}, make("h3", { tabindex: -1 }, title)), ...parts);
}

function sections(host) {
  const { look, sections: titles, run } = data().about;
  const members = Object.keys(host).filter((name) => name !== "name" && !look.includes(name) && !isEmpty(host[name]));
  const order = [...Object.keys(titles).filter((name) => members.includes(name)), ...members.filter((name) => !(name in titles))];
  const shown = order.map((name) => {
    let thing = host[name];
    if (name === "gpus" && Object.keys(thing.links ?? {}).length) {
      const { links, p2p, ...rest } = thing;
      thing = rest;
    }
    const title = titles[name] ?? label(name).replace(/^./, (first) => first.toUpperCase());
    return folded(title, ...(Array.isArray(thing) ? list(thing, 4, title) : isRecord(thing) ? facts(thing, 4) : [make("p", {}, value(name, thing))]));
  });
  return [...shown, folded("This check", ...facts({ ...Object.fromEntries(look.map((name) => [name, host[name]])), ...run }, 4))];
}

// What to do about a host that was not checked, where fleetcheck runs.
function further({ next }, host) {
  if (!next) return null;
  const changed = host.outcome === "host-key-changed";
  const command = (text) => make("div", {}, make("code", { class: "command" }, text), copier(text));
  return block("Next step", make("div", { class: changed ? "next changed" : "next" },
    changed ? make("p", { class: "warn" }, "Another key than the known one: the host was reinstalled, or something else answers in its place. Find out which before you log in.") : null,
    make("p", {}, next.said), ...next.commands.map(command),
    next.keys ? make("p", {}, "Only after you compared the key with the host's own:") : null, next.keys ? command(next.keys) : null));
}

// As the sentence counts them, and of them what is no fault or goes with another.
function counted({ all, info, explained }) {
  const parts = [info && `${info} info`, explained && `${explained} explained`].filter(Boolean);
  return `Findings: ${all}${parts.length ? ` (${parts.join(", ")})` : ""}`;
}

function contents(parts) {
  const links = parts.map((part) => {
    const heading = part.querySelector("h3");
    const button = make("button", { type: "button" }, heading.textContent);
    button.addEventListener("click", () => {
      if (part.localName === "details") part.open = true;
      part.scrollIntoView();
      heading.focus({ preventScroll: true });
    });
    return make("li", {}, button);
  });
  return make("nav", { class: "contents", "aria-label": "Of this host" }, make("ul", {}, ...links));
}

function hostView(host, room) {
  const { sentence, findings, counts, waived, unexamined, facts: seen } = host;
  const drawing = topology(seen.gpus ?? {}, room);
  const parts = [
    further(host, seen),
    findings.length ? block(counted(counts), ...findings.map(finding)) : null,
    waived.length ? block("Waived", make("ul", { class: "plain" }, ...waived.map((one) => make("li", { "data-rule": one.rule, tabindex: -1 }, badge("waived"), " ", named("b", one.rule), ` until ${one.until}, ${one.reason}: ${one.message}`)))) : null,
    drawing ? block("Topology", drawing) : null,
    ...sections(seen),
    unexamined.length ? folded("Not examined", make("ul", { class: "plain" }, ...unexamined.map((line) => make("li", {}, line)))) : null,
  ].filter((part) => part !== null);
  return [make("p", { class: `sentence ${seen.outcome === "host-key-changed" ? "changed" : ""}` }, ...soft(sentence)), contents(parts), ...parts];
}
