// What pages gain with a script: times that go on, copy buttons, shown passwords, a question before a change, live regions. None needs it.
"use strict";
// The reader's zone, for what the server writes: charts, days, times.
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) document.cookie = `heliograph_zone=${zone}; path=/dashboard; max-age=31536000; samesite=lax`;
const exactly = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
// The server's clock, or the team's test clock, may differ from this browser's.
let offset = 0;
const setOffset = (page) => { const now = Number(page.documentElement.dataset.now); if (now) offset = now - Date.now(); };
setOffset(document);
// In the words of `format_ago` in render.py.
const ago = (at) => {
  const now = Date.now() + offset, away = Math.abs(now - at), isPast = at <= now;
  if (away >= 7 * 86400000) {
    const year = at.getFullYear() === new Date(now).getFullYear() ? undefined : "numeric";
    return at.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
  }
  if (away < (isPast ? 10000 : 1000)) return "just now";
  const [size, unit] = [[86400000, "day"], [3600000, "h"], [60000, "min"], [1000, "s"]].find(([one]) => away >= one);
  const count = Math.floor(away / size);
  const span = `${count} ${unit}${unit === "day" && count > 1 ? "s" : ""}`;
  return isPast ? `${span} ago` : `in ${span}`;
};
const showTimes = (root) => {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime), said = exactly.format(at), [shown, heard] = time.children;
    if (time.className === "clock") { time.textContent = clock.format(at); time.title = `${said}, ${ago(at)}`; continue; }
    if (!heard) { time.textContent = said; continue; }
    time.title = heard.textContent = said;
    shown.textContent = ago(at);
  }
};
const addCopyButtons = (root) => {
  for (const place of root.querySelectorAll(".copyable")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    if (place.classList.contains("block")) place.prepend(button);  // the code flows around it
    else place.append(button);
  }
};
const addEyes = (root) => {
  for (const field of root.querySelectorAll("input[type=password]")) {
    const place = document.createElement("div"), button = document.createElement("button");
    place.className = "secret";
    button.type = "button";
    button.textContent = "Show";
    button.setAttribute("aria-label", "Show value");
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      const isShown = field.type === "text";
      field.type = isShown ? "password" : "text";
      button.textContent = isShown ? "Show" : "Hide";
      button.setAttribute("aria-pressed", String(!isShown));
    });
    const hasFocus = document.activeElement === field;
    field.replaceWith(place);
    place.append(field, button);
    if (hasFocus) field.focus();
  }
};
const dress = (root) => { showTimes(root); addCopyButtons(root); };
dress(document);
addEyes(document);
setInterval(() => { if (!document.hidden) showTimes(document); }, 20000);
// Copy also on plain http, where browsers have no clipboard to write to.
const copy = async (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const field = document.createElement("textarea"), before = document.activeElement;
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus();
  return done;
};
document.addEventListener("click", async (event) => {
  const button = event.target.closest(".copyable > button");
  if (!button) return;
  const shown = button.parentNode.querySelector("code, pre");
  const done = await copy(shown.textContent);
  if (!done) getSelection().selectAllChildren(shown);  // one key more, but no lie
  button.textContent = done ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});
// Signing out deletes the unsaved text that the browser keeps of this user.
document.querySelector("form[action$='/sign-out']")?.addEventListener("submit", () => {
  try {
    for (const name of Object.keys(localStorage)) if (name.startsWith("heliograph.")) localStorage.removeItem(name);
  } catch { /* it keeps nothing */ }
});
// What opens over the page closes by a click beside it and by Escape.
const shut = (except) => {
  for (const open of document.querySelectorAll("details[data-shuts][open]")) if (open !== except) open.open = false;
};
document.addEventListener("click", (event) => shut(event.target.closest("details[data-shuts]")));
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && event.target.closest("details[data-shuts][open]");
  if (open) { open.open = false; open.querySelector("summary").focus(); }
});
// A form with a question asks it first; without script the server shows it on a page.
document.addEventListener("submit", (event) => {
  const form = event.target, button = event.submitter, question = form.elements.ask;
  if (!question || question.disabled) return;
  event.preventDefault();
  const dialog = document.createElement("dialog"), text = document.createElement("p"), actions = document.createElement("div");
  const cancel = document.createElement("button"), go = button.cloneNode(true);
  text.textContent = question.value;
  text.id = "question";
  dialog.setAttribute("aria-labelledby", text.id);
  cancel.textContent = "Cancel";
  actions.className = "actions";
  actions.append(cancel, go);
  dialog.append(text, actions);
  document.body.append(dialog);
  cancel.addEventListener("click", () => dialog.close());
  go.addEventListener("click", () => dialog.close("confirmed"));
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (dialog.returnValue !== "confirmed") { button.focus(); return; }
    question.disabled = true;
    form.requestSubmit(button);
    question.disabled = false;
  });
  dialog.showModal();
});
// What was sent shows that it moves, from a moment on; and is sent once.
const rest = () => {
  for (const button of document.querySelectorAll("[aria-busy=true]")) button.removeAttribute("aria-busy");
};
document.addEventListener("submit", (event) => {
  const button = event.submitter ?? event.target.querySelector("button");
  if (button?.formTarget || event.target.target) return;  // the answer goes elsewhere: a preview comes again and again
  if (button?.getAttribute("aria-busy")) event.preventDefault();
  else setTimeout(() => { if (!event.defaultPrevented) button?.setAttribute("aria-busy", "true"); }, 150);
  setTimeout(rest, 20000);  // an answer that is saved as a file leaves the page where it is
});
addEventListener("pageshow", rest);
// Make an element like a fresh copy of it by changing only what differs: focus, open details, selection and scrolling
// stay. Children with a key (id or data-key) are found again where others came or went before them.
const keyOf = (node) => node.id || node.dataset?.key || undefined;
const keyed = (parent) => {
  const seen = {};
  const numbered = ({ nodeName }) => `${nodeName} ${seen[nodeName] = (seen[nodeName] ?? 0) + 1}`;
  return new Map([...parent.children].map((child) => [keyOf(child) ?? numbered(child), child]));
};
const follow = (old, fresh) => {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) { old.replaceWith(fresh); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { old.data = fresh.data; return; }
  const isOwn = (name) => old.nodeName === "DETAILS" && name === "open";
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !isOwn(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !isOwn(name)) old.setAttribute(name, value);
  }
  [...old.children, ...fresh.children].some(keyOf) ? followKeys(old, fresh) : followPlaces(old, fresh);
};
const followKeys = (old, fresh) => {
  const [known, wanted] = [keyed(old), keyed(fresh)];
  for (const [key, child] of known) if (!wanted.has(key)) child.remove();
  let at = old.firstElementChild;
  for (const [key, child] of wanted) {
    const same = known.get(key);
    if (!same) { old.insertBefore(child, at); continue; }
    if (same === at) at = at.nextElementSibling;
    else old.insertBefore(same, at);
    follow(same, child);
  }
};
const followPlaces = (old, fresh) => {
  const [there, wanted] = [[...old.childNodes], [...fresh.childNodes]];
  wanted.forEach((child, i) => (i < there.length ? follow(there[i], child) : old.append(child)));
  there.slice(wanted.length).forEach((child) => child.remove());
};
// <… data-live="URL">: an event stream that reports changes of the page. After each, the page is fetched again and its
// elements marked data-fresh (or this element itself if it has an id) are replaced. One stream per page, none while hidden.
const live = document.querySelector("[data-live]");
if (live) {
  const say = (word) => { if (!live.id) live.textContent = word; };
  // A control that the user is about to press must not move or change its meaning.
  const isInUse = (place) => place.querySelector("form") &&
    (place.matches(":hover, :focus-within") || place.querySelector("input:checked"));
  const late = new Map();
  const apply = () => {
    for (const [place, fresh] of late) if (!isInUse(place)) { late.delete(place); follow(place, fresh); }
  };
  for (const name of ["pointerout", "focusout", "change"]) document.addEventListener(name, () => setTimeout(apply));
  let source = null, over = false, fetching = false, missed = false;
  const close = () => { source?.close(); source = null; say(""); };
  const refresh = async () => {
    if (fetching) { missed = true; return; }
    if (document.hidden) return;
    fetching = true;
    try {
      const answer = await fetch(location.href);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.redirected) { over = true; close(); }
      if (!answer.ok || answer.redirected) return;
      setOffset(page);
      for (const place of document.querySelectorAll("[data-fresh], [data-live][id]")) {
        const fresh = page.getElementById(place.id);
        if (!fresh) continue;
        dress(fresh);
        late.set(place, fresh);
      }
      apply();
      const next = page.querySelector("[data-live]");
      if (next) live.dataset.live = next.dataset.live;
    } catch { /* network error: the stream reconnects automatically and reports what changed */ } finally {
      fetching = false;
      if (missed) { missed = false; setTimeout(refresh, 2000); }
    }
  };
  const open = () => {
    if (source || over || document.hidden) return;
    source = new EventSource(live.dataset.live);
    source.addEventListener("open", () => say("Updating"));
    source.addEventListener("error", () => say(""));
    source.addEventListener("changed", refresh);
    source.addEventListener("done", (event) => {
      close();
      if (event.data === "over") over = true;
      else setTimeout(open, event.data === "full" ? 60000 : 5000);
    });
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  open();
}
// <input data-filters="id">: what is typed leaves those entries of that place (of its data-filtered parts) that have it.
for (const field of document.querySelectorAll("input[data-filters]")) {
  const parts = document.getElementById(field.dataset.filters)?.querySelectorAll("[data-filtered]") ?? [];
  const has = (node, words) => words.every((word) => node.textContent.toLowerCase().includes(word));
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const part of parts) {
      const entries = [...part.querySelectorAll("a")], isList = part.nodeName === "DIV";
      for (const entry of isList ? entries : []) entry.hidden = !has(entry, words);
      part.hidden = isList ? entries.every((entry) => entry.hidden) : !has(part, words);
    }
  });
}
// <select data-searchable>: if it has many options, a box takes its place in which a part of an option or of its group
// is typed (the combobox of the ARIA practices). The select keeps the value; choosing one applies the filter.
const searchBox = (select) => {
  const label = document.querySelector(`label[for="${select.id}"]`), combo = document.createElement("div");
  const box = document.createElement("input"), list = document.createElement("div");
  const rows = () => [...list.querySelectorAll("[role=option]")];
  const activeRow = () => list.querySelector("[aria-selected=true]");
  const set = (node, attributes) => { for (const name in attributes) node.setAttribute(name, attributes[name]); return node; };
  const make = (attributes, ...content) => { const node = set(document.createElement("div"), attributes); node.append(...content); return node; };
  const restore = () => { box.value = select.value && select.selectedOptions[0].text; };
  const isOpen = () => !list.hidden;
  const close = () => { list.hidden = true; box.setAttribute("aria-expanded", "false"); box.removeAttribute("aria-activedescendant"); };
  const activate = (row) => {
    for (const one of rows()) one.setAttribute("aria-selected", String(one === row));
    if (!row) { box.removeAttribute("aria-activedescendant"); return; }
    box.setAttribute("aria-activedescendant", row.id);
    row.scrollIntoView({ block: "nearest" });
  };
  const open = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const draw = (option) => make({ role: "option", id: `${list.id}-${option.index}`, "data-index": option.index }, option.text);
    const found = (option) => words.every((word) => `${option.parentNode.label ?? ""} ${option.text}`.toLowerCase().includes(word));
    list.replaceChildren(...[...select.children].flatMap((child) => {
      if (child.nodeName === "OPTION") return found(child) ? [draw(child)] : [];
      const options = [...child.children].filter(found);
      const title = make({ "aria-hidden": "true", class: "group" }, child.label);
      return options.length ? [make({ role: "group", "aria-label": child.label }, title, ...options.map(draw))] : [];
    }));
    if (!list.firstChild) list.append(make({ role: "option", "aria-disabled": "true", class: "quiet" }, "No match"));
    list.hidden = false;
    box.setAttribute("aria-expanded", "true");
    const current = words.length ? null : rows().find((row) => Number(row.dataset.index) === select.selectedIndex);
    activate(current ?? rows().find((row) => row.dataset.index));
  };
  const choose = (row) => {
    if (!row?.dataset.index) return;
    select.selectedIndex = Number(row.dataset.index);
    restore();
    close();
    select.form?.matches(".filters[method=get]") && select.form.requestSubmit();
  };
  set(box, { id: select.id, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false", placeholder: select.options[0].text,
    "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${select.id}-list` });
  set(list, { id: `${select.id}-list`, role: "listbox", "aria-label": label.textContent });
  combo.className = "combo";
  select.removeAttribute("id");
  select.hidden = list.hidden = true;
  select.after(combo);
  combo.append(box, list);
  restore();
  addEventListener("pageshow", restore);  // a browser that goes back restores the select's value
  box.addEventListener("focus", () => box.select());
  box.addEventListener("click", () => { if (!isOpen()) open(""); });
  box.addEventListener("input", () => open(box.value));
  box.addEventListener("blur", () => {
    if (!box.value) select.selectedIndex = 0;
    close();
    restore();
  });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && !isOpen()) open("");
    else if (step) { const all = rows(), at = all.indexOf(activeRow()); activate(all[(at + step + all.length) % all.length]); }
    else if (event.key === "Enter" && isOpen()) choose(activeRow());
    else if (event.key === "Escape" && isOpen()) { close(); restore(); }
    else return;
    event.preventDefault();
  });
  list.addEventListener("pointerdown", (event) => event.preventDefault());  // the box keeps its focus
  list.addEventListener("click", (event) => choose(event.target.closest("[role=option]")));
};
const SEARCHED_OPTIONS_MIN = 10;
for (const select of document.querySelectorAll("select[data-searchable]")) {
  if (select.length >= SEARCHED_OPTIONS_MIN) searchBox(select);
}
// A long page is folded on a phone, unless its address leads into the fold.
if (matchMedia("(max-width: 48rem)").matches) {
  for (const fold of document.querySelectorAll("[data-folds-on-phones]")) fold.open = Boolean(fold.querySelector(":target"));
}
// The language that a reader chose for examples stays chosen.
for (const choice of document.querySelectorAll(".langs input")) {
  if (localStorage.getItem("language") === choice.value) choice.checked = true;
  choice.addEventListener("change", () => localStorage.setItem("language", choice.value));
}
// The docs fill in the sender of the team that was looked at last, and say which keys it has.
const team = location.pathname.match(/^\/dashboard\/teams\/\w+/)?.[0];
if (team) localStorage.setItem("heliograph.team", team);
const notes = document.querySelectorAll("[data-own]");
const mine = notes.length && localStorage.getItem("heliograph.team");
const fillIn = ({ team, sender, keys, place }) => {
  for (const code of sender ? document.querySelectorAll(".langs code") : []) {
    const to = [...code.children].find((one) => one.textContent === '"delivered@simulator.test"');
    const [, space, quote] = to?.nextSibling.data?.match(/^,(\s*)("?)/) ?? [];
    const own = Object.assign(document.createElement("span"), { textContent: JSON.stringify(sender) });
    if (space) to.after(`,${space}${quote ? '"from": ' : "from_="}`, own);
  }
  for (const one of sender ? document.querySelectorAll(".copyable code *") : []) {  // of responses
    if (/^"hello@(demo|sandbox\.heliograph)\.test"$/.test(one.textContent)) one.textContent = JSON.stringify(sender);
    // with a sender, the example is that of a live team
    if (one.textContent === "true" && /"sandbox": $/.test(one.previousSibling?.data)) one.textContent = "false";
  }
  const link = Object.assign(document.createElement("a"), { href: `${place}/keys/new`, textContent: "New key" });
  const words = [`Example for ${team}.`, keys.length ? `Set HELIOGRAPH_KEY to one of its keys: ${keys.join(", ")}.` : "", ""];
  for (const note of notes) { note.replaceChildren(words.join(" "), link.cloneNode(true)); note.hidden = false; }
};
if (mine) {
  fetch(`${mine}/start/own`).then((answer) => (answer.ok && !answer.redirected ? answer.json() : null))
    .then((values) => { if (values) fillIn(values); }, () => {});
}
// A long list of places shows where one is.
document.querySelector(".places [aria-current]")?.scrollIntoView({ block: document.body.classList.contains("docs") ? "center" : "nearest" });
// Search: `/` and Ctrl-K go to the box, or to its page where there is none; what is typed there is looked for at once,
// and shown below it. Arrows go through what was found, Enter takes the first.
const hitsOf = async (place, text) => {
  const answer = await fetch(`${place}?part&q=${encodeURIComponent(text)}`).catch(() => null);
  if (!answer?.ok || answer.redirected) return null;
  return [...new DOMParser().parseFromString(await answer.text(), "text/html").body.childNodes];
};
const finder = document.querySelector(".top .find");
const field = finder?.querySelector("input");
const palette = finder && Object.assign(document.createElement("div"), { className: "palette", hidden: true });
if (finder) {
  let asked = 0, shown = null;
  const look = async () => {
    const text = field.value.trim(), number = ++asked;
    const hits = await hitsOf(finder.action, text);
    if (number !== asked || !hits || document.activeElement !== field) return;
    palette.replaceChildren(...hits);
    dress(palette);
    shown = text;
    palette.hidden = false;
  };
  let timer = 0;
  const soon = () => { clearTimeout(timer); timer = setTimeout(look, 120); };
  finder.append(palette);
  field.addEventListener("input", soon);
  field.addEventListener("focus", soon);
  finder.addEventListener("submit", (event) => {
    const first = palette.querySelector(".hits a");
    if (palette.hidden || !field.value.trim() || shown !== field.value.trim() || !first) return;
    event.preventDefault();
    location.assign(first.href);
  });
  const close = () => { clearTimeout(timer); asked++; palette.hidden = true; finder.classList.remove("over"); };
  finder.addEventListener("focusout", (event) => { if (!finder.contains(event.relatedTarget)) close(); });
  finder.addEventListener("keydown", (event) => { if (event.key === "Escape") { field.focus(); close(); } });
  palette.addEventListener("pointerdown", (event) => event.preventDefault());  // the field keeps its focus
}
// The page of the search answers while one types as well.
const results = document.getElementById("results");
if (results) {
  const box = document.querySelector(".search-box input");
  let asked = 0, timer = 0;
  const look = async () => {
    const number = ++asked, hits = await hitsOf(location.pathname, box.value.trim());
    if (number !== asked || !hits) return;
    results.replaceChildren(...hits);
    dress(results);
  };
  box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(look, 120); });
}
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
  const isSlash = event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey;
  const isK = event.key?.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey;
  if (isSlash || isK) {
    const box = [...document.querySelectorAll("[data-find]")].findLast((one) => one.offsetParent);
    if (!box && !field) return;
    event.preventDefault();
    if (!box) finder.classList.add("over");  // a phone has no room for it in its bar
    (box ?? field).focus();
    (box ?? field).select();
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const place = event.target.closest?.(".find, main");
  const box = place?.querySelector("[data-find]");
  const hits = place ? [...place.querySelectorAll(".hits a")] : [];
  const at = hits.indexOf(event.target);
  if (!step || !hits.length || (at < 0 && event.target !== box)) return;
  event.preventDefault();
  (hits[at + step] ?? (at + step < 0 ? box : null))?.focus();
});
// A filter or a role that is chosen with a mouse or a finger applies at once; by keyboard one may go through the choices first.
let isPointed = false;
for (const name of ["pointerdown", "keydown"]) {
  document.addEventListener(name, () => { isPointed = name === "pointerdown"; }, true);
}
document.addEventListener("change", (event) => {
  const form = event.target.closest("form.filters[method=get], form.at-once");
  if (isPointed && form && event.target.matches("select, [type=checkbox]")) form.requestSubmit();
});
