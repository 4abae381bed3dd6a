// How the GPUs of a host are linked: boxes within boxes from the closest link to the longest way, and a table.

const WAYS = ["PIX", "PSB", "PXB", "PHB", "NODE", "SOC", "SYS"];
const MEANING = {
  NV: "NVLink", PIX: "one PCIe switch", PSB: "one board", PXB: "several PCIe switches", PHB: "one host bridge",
  NODE: "one NUMA node", SOC: "between CPU sockets", SYS: "between NUMA nodes",
};
const TILE = { width: 84, height: 58, gap: 8 };
const BOX = { pad: 12, head: 24 };

function kindOf(word) {
  return word.startsWith("NV") ? "NV" : word;
}

// 0 is the closest: NVLinks, the more the closer, then PCIe from one switch to between sockets.
function distance(word) {
  const links = /^NV(\d+)$/.exec(word);
  if (links) return 1 - Number(links[1]) / 1000;
  const place = WAYS.indexOf(word);
  return place < 0 ? 100 : 2 + place;
}

function pairs(links) {
  return Object.entries(links).flatMap(([name, word]) => {
    const ends = /^(\d{1,3})-(\d{1,3})$/.exec(name);
    return ends && typeof word === "string" ? [{ low: Number(ends[1]), high: Number(ends[2]), word }] : [];
  });
}

// Join what a way connects, from the closest way to the longest: each join is a box around the boxes before it.
function boxes(indices, links) {
  const of = new Map(indices.map((index) => [index, { members: [index], parts: [], word: null }]));
  const ways = [...new Set(links.map(({ word }) => word))].sort((one, other) => distance(one) - distance(other));
  for (const word of ways) {
    const joined = new Map();
    const root = (box) => (joined.has(box) ? root(joined.get(box)) : box);
    for (const { low, high } of links.filter((link) => link.word === word)) {
      const [one, other] = [root(of.get(low)), root(of.get(high))];
      if (one !== other) joined.set(other, one);
    }
    const parts = new Map();
    for (const box of new Set(of.values())) parts.set(root(box), [...(parts.get(root(box)) ?? []), box]);
    for (const together of parts.values()) {
      if (together.length < 2) continue;
      const box = { members: together.flatMap((part) => part.members), parts: together, word };
      for (const member of box.members) of.set(member, box);
    }
  }
  const outer = [...new Set(of.values())];
  for (const box of outer) settle(box, links);
  return outer;
}

// A box is whole where each pair in it has its way or a closer one.
function settle(box, links) {
  if (!box.parts.length) return;
  box.members.sort((one, other) => one - other);
  box.parts.sort((one, other) => Math.min(...one.members) - Math.min(...other.members));
  const inside = new Set(box.members);
  const far = links.filter(({ low, high }) => inside.has(low) && inside.has(high));
  const known = far.length === (box.members.length * (box.members.length - 1)) / 2;
  box.whole = known && far.every(({ word }) => distance(word) <= distance(box.word));
  for (const part of box.parts) settle(part, links);
}

// Give each box its size within a width; tiles and boxes break into lines.
function measure(box, width) {
  if (!box.parts.length) return { box, width: TILE.width, height: TILE.height, inner: [] };
  let [x, y, line, right] = [0, 0, 0, 0];
  const inner = [];
  for (const part of box.parts) {
    const sized = measure(part, width - 2 * BOX.pad);
    if (x && x + sized.width > width - 2 * BOX.pad) [x, y, line] = [0, y + line + TILE.gap, 0];
    inner.push({ ...sized, x: x + BOX.pad, y: y + BOX.head });
    x += sized.width + TILE.gap;
    line = Math.max(line, sized.height);
    right = Math.max(right, x - TILE.gap);
  }
  const least = caption(box).length * 6.6;
  return { box, inner, width: Math.max(right, least) + 2 * BOX.pad, height: y + line + BOX.head + BOX.pad };
}

function caption(box) {
  if (!box.word) return "Place not measured";
  const meaning = MEANING[kindOf(box.word)];
  const name = meaning ? `${box.word}  ${meaning}` : box.word;
  return box.whole ? name : `${name}, not every pair`;
}

function tile(device, x, y) {
  const lost = device.state !== "ok" && device.state !== "unknown";
  const name = Number.isInteger(device.index) ? `GPU ${device.index}` : device.state === "missing" ? "lost GPU" : "GPU –";
  const bus = clean(device.bus_id ?? "", 20).replace(/^0{4}(?=[0-9A-F]{4}:)/, "");
  const state = device.state === "missing" ? "not listed" : device.state;
  return draw("g", { class: lost ? `tile ${device.state}` : "tile", transform: `translate(${x} ${y})` },
    draw("rect", { width: TILE.width, height: TILE.height, rx: 5 }),
    lost ? draw("path", { class: "cross", d: `M${TILE.width - 18} 8l10 10m0-10l-10 10` }) : null,
    draw("text", { x: 9, y: 20, class: "name" }, name),
    draw("text", { x: 9, y: 35 }, lost ? state : device.compute_capability ? clean(device.compute_capability, 8) : ""),
    draw("text", { x: 9, y: 49, class: "bus" }, bus.replace(/\.0$/, "")));
}

function place(sized, x, y, devices, target) {
  const { box } = sized;
  if (!box.parts.length) {
    target.append(tile(devices.get(box.members[0]), x, y));
    return;
  }
  target.append(draw("rect", { class: `box ${box.word ? kindOf(box.word) : "apart"}`, x, y, width: sized.width, height: sized.height, rx: 8 }));
  target.append(draw("text", { class: "way", x: x + BOX.pad, y: y + 16 }, caption(box)));
  for (const part of sized.inner) place(part, x + part.x, y + part.y, devices, target);
}

function topology(gpus, room) {
  const links = pairs(gpus.links ?? {});
  const listed = (gpus.devices ?? []).filter((device) => Number.isInteger(device.index));
  const others = (gpus.devices ?? []).filter((device) => !Number.isInteger(device.index));
  const devices = new Map(listed.map((device) => [device.index, device]));
  for (const { low, high } of links) {
    for (const index of [low, high]) if (!devices.has(index)) devices.set(index, { index, state: "unknown" });
  }
  if (!devices.size && !others.length) return null;
  others.forEach((device, number) => devices.set(-1 - number, device));
  const indices = [...devices.keys()].filter((index) => index >= 0).sort((one, other) => one - other);
  const alone = others.map((_, number) => ({ members: [-1 - number], parts: [], word: null }));
  const outer = [...boxes(indices, links), ...alone];
  const apart = links.length ? outer.filter((box) => !box.parts.length) : [];
  const drawn = lines([...outer.filter((box) => !apart.includes(box)), ...unplaced(apart)], devices, room);
  const told = words(links, [...devices.values()], new Set(apart.flatMap((box) => box.members).map((index) => devices.get(index))));
  drawn.setAttribute("aria-label", told);
  return make("figure", { class: "topology" }, make("figcaption", {}, told), drawn, ways(indices, links, gpus.p2p ?? {}));
}

// GPUs that no link tells of, as one that is lost: a box of their own, so that where they are drawn says nothing.
function unplaced(apart) {
  return apart.length ? [{ members: apart.flatMap((box) => box.members), parts: apart, word: null }] : [];
}

function lines(outer, devices, room) {
  const drawn = draw("svg", { role: "img" });
  let [x, y, line, right] = [0, 0, 0, 0];
  for (const box of outer) {
    const sized = measure(box, room);
    if (x && x + sized.width > room) [x, y, line] = [0, y + line + TILE.gap, 0];
    place(sized, x + 1, y + 1, devices, drawn);
    x += sized.width + TILE.gap;
    line = Math.max(line, sized.height);
    right = Math.max(right, x);
  }
  fill(drawn, { viewBox: `0 0 ${right} ${y + line + 2}`, width: right, height: y + line + 2 }, []);
  return drawn;
}

function words(links, devices, apart) {
  if (!links.length) return `How the GPUs are linked is not known.${broken(devices, apart)}`;
  const counted = new Map();
  for (const { word } of links) counted.set(word, (counted.get(word) ?? 0) + 1);
  const told = [...counted].sort(([one], [other]) => distance(one) - distance(other)).map(([word, count]) => `${count} ${word}`);
  return `Links of ${links.length} ${links.length === 1 ? "pair" : "pairs"} of GPUs: ${told.join(", ")}.${broken(devices, apart)}`;
}

// What is wrong with GPUs, each kind with the places that were not measured, and those of GPUs that are well.
function broken(devices, apart) {
  const kind = (device) => (device.state === "fault" ? "at fault" : device.state === "missing" || !(Number.isInteger(device.index) || device.state === "ok") ? "lost" : "");
  const some = (count) => (count === 1 ? "One GPU" : `${count} GPUs`);
  const parts = ["lost", "at fault"].map((said) => {
    const all = devices.filter((device) => kind(device) === said);
    const unplaced = all.filter((device) => apart.has(device)).length;
    if (!all.length) return "";
    const lead = ` ${some(all.length)} ${all.length === 1 ? "is" : "are"} ${said}`;
    if (!unplaced) return `${lead}.`;
    if (unplaced < all.length) return `${lead}; the ${unplaced === 1 ? "place of one of them was" : `places of ${unplaced} of them were`} not measured.`;
    return `${lead}; ${all.length === 1 ? "its place was" : "their places were"} not measured.`;
  });
  const well = [...apart].filter((device) => !kind(device)).length;
  const left = well ? ` The ${well === 1 ? "place of one GPU was" : `places of ${well} GPUs were`} not measured.` : "";
  return `${parts.join("")}${left}`;
}

function ways(indices, links, peers) {
  if (!links.length) return null;
  const word = new Map(links.map((link) => [`${link.low}-${link.high}`, link.word]));
  const head = make("tr", {}, make("td"), ...indices.map((index) => make("th", { scope: "col" }, `GPU ${index}`)));
  const rows = indices.map((row) => make("tr", {}, make("th", { scope: "row" }, `GPU ${row}`), ...indices.map((column) => {
    if (row === column) return make("td", { class: "self" }, "–");
    const pair = `${Math.min(row, column)}-${Math.max(row, column)}`;
    const found = word.get(pair);
    const peer = typeof peers[pair] === "string" && peers[pair] !== "OK" ? `no P2P (${clean(peers[pair], 8)})` : "";
    return make("td", { class: found ? kindOf(found) : "" }, found ? clean(found, 8) : "not known", peer && make("small", {}, ` ${peer}`));
  })));
  return make("details", { class: "ways" }, make("summary", {}, "Each pair as a table"),
    make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Link of each pair of GPUs" },
      make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))));
}
