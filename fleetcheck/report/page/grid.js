// The table's frame: headings that stay, columns that do not fit, and columns that tell nothing of the hosts shown.

const FIXED = 8;
const LINK = 3;
const PHONE = matchMedia("screen and (max-width: 760px)");

function gridOf(table, act) {
  const frame = table.closest(".frame");
  const grid = frame.querySelector(".grid");
  const band = frame.querySelector(".band > div");
  const copy = band.firstElementChild;
  const beyond = byId("beyond");
  const heads = [...table.tHead.rows[0].cells];
  const buttons = heads.map((head) => button(head, act));
  const hidden = rule(".never { display: none; }");
  const beside = rule(".matrix .verdict { left: 0; }");
  let width = 0;
  let height = 0;

  // One heading is in the order of Tab; the arrows lead to the others.
  function rove(to) {
    for (const one of buttons) one.tabIndex = one === to ? 0 : -1;
  }

  function keys(event) {
    const seen = buttons.filter((one) => one.offsetParent);
    const here = seen.indexOf(document.activeElement);
    const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: seen.length - 1 }[event.key];
    if (here < 0 || to === undefined || !seen[to]) return;
    event.preventDefault();
    rove(seen[to]);
    seen[to].focus();
  }

  // All is read before anything is written: a table of thousands of rows is laid out once.
  function measure() {
    const row = table.tHead.rows[0];
    row.style.height = "";
    const seen = heads.map((head) => head.getBoundingClientRect());
    const exact = row.getBoundingClientRect().height;
    height = Math.ceil(exact);
    const whole = table.offsetWidth;
    width = grid.clientWidth;
    follow();
    drift();
    beside.style.left = `${seen[0].width}px`;
    grid.style.scrollPaddingLeft = `${seen[0].width + seen[1].width}px`;
    // A heading that ends between two pixels would have its rule drawn now on one, now on the other.
    row.style.height = PHONE.matches || exact === height ? "" : `${height}px`;
    copy.style.width = `${whole}px`;
    copy.replaceChildren(copied(seen));
  }

  // The copy of the headings has the widths that they have now, and no part in what is read or reached by Tab.
  function copied(seen) {
    const head = table.tHead.cloneNode(true);
    for (const [place, cell] of [...head.rows[0].cells].entries()) {
      cell.style.minWidth = cell.style.maxWidth = cell.style.width = `${seen[place].width}px`;
      if (cell.hasAttribute("aria-sort")) cell.dataset.sorted = cell.getAttribute("aria-sort");
      cell.removeAttribute("aria-sort");
      cell.firstElementChild.tabIndex = -1;
    }
    return head;
  }

  function follow() {
    band.scrollLeft = grid.scrollLeft;
    const edge = grid.getBoundingClientRect().right;
    const cut = heads.filter((head) => head.offsetParent && head.getBoundingClientRect().right > edge + 2);
    const rules = cut.every((head) => head.classList.contains("r"));
    const what = rules ? (cut.length === 1 ? "rule" : "rules") : cut.length === 1 ? "column" : "columns";
    frame.classList.toggle("cut", cut.length > 0);
    beyond.hidden = !cut.length && grid.scrollLeft < 8;
    beyond.textContent = cut.length ? `${cut.length} more ${what} →` : "← back to the first columns";
  }

  function drift() {
    const { top, bottom } = grid.getBoundingClientRect();
    frame.classList.toggle("adrift", top < 0 && bottom > 2 * height);
  }

  // Of the rules only those that found something on a host that is shown; without them the words that tell more.
  function narrow(entries) {
    const told = entries && new Set(entries.flatMap(({ row }) => [...row.querySelectorAll("td.r")].map((cell) => cell.cellIndex)));
    const empty = told ? heads.map((_, place) => place).filter((place) => place >= FIXED && !told.has(place)) : [];
    const chosen = [...same, ...empty].map((place) => `.matrix tr > :nth-child(${place + 1})`).join(", ") || ".never";
    if (hidden.selectorText !== chosen) hidden.selectorText = chosen;
    measure();
  }

  // Where every host has the same link, one line says it, and the rules have the room.
  const links = [...new Set([...table.tBodies[0].rows].map((row) => row.cells[LINK].textContent))].filter((text) => text !== "-");
  const same = links.length === 1 && table.tBodies[0].rows.length > 1 ? [LINK] : [];
  byId("alike").hidden = !same.length;
  byId("alike").textContent = `Link: ${links[0]} on every host where it is known.`;
  rove(buttons[1]);
  table.tHead.addEventListener("keydown", keys);
  table.tHead.addEventListener("focusin", (event) => rove(event.target));
  band.addEventListener("click", (event) => {
    const cell = event.target.closest("th");
    if (cell) act(heads[cell.cellIndex]);
  });
  beyond.addEventListener("click", () => {
    const room = grid.clientWidth - heads[0].offsetWidth - heads[1].offsetWidth;
    grid.scrollLeft = frame.classList.contains("cut") ? grid.scrollLeft + room : 0;
  });
  grid.addEventListener("scroll", follow, { passive: true });
  addEventListener("scroll", drift, { passive: true });
  // What is measured changes the height alone: only another width is to be measured again.
  new ResizeObserver(() => grid.clientWidth !== width && measure()).observe(grid);
  return { heads, narrow, height: () => height, aside: (by) => grid.scrollBy({ left: by }) };
}

// A rule of the page's own style that is written as the page changes.
function rule(text) {
  const { cssRules } = document.styleSheets[0];
  document.styleSheets[0].insertRule(text, cssRules.length);
  return cssRules[cssRules.length - 1];
}

// No button element: on the second sheet of paper Chromium leaves those of the headings out.
function button(head, act) {
  const made = make("span", { role: "button", tabindex: -1 }, ...head.childNodes);
  made.addEventListener("click", () => act(head));
  made.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    act(head);
  });
  if (head.classList.contains("r")) made.setAttribute("aria-description", `${head.title.split(": ").slice(1).join(": ")} Shows the hosts it speaks of.`);
  head.title += head.classList.contains("r") ? "\nClick: only the hosts it speaks of" : `${head.title ? "\n" : ""}Click: sort`;
  head.replaceChildren(made);
  return made;
}
