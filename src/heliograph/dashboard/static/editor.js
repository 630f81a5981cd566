// The pages of templates: previews as high as what they show, and in the editor a preview while it is typed, variables
// that declare themselves, and text that is never lost: it is kept in this browser until the server has it.
"use strict";
{
  const PREFIX = "heliograph.template.", SENT = "heliograph.sent", WEEK = 7 * 86400000;
  // Storage may be full, or forbidden.
  const kept = {
    get: (key) => { try { return JSON.parse(localStorage.getItem(PREFIX + key)); } catch { return null; } },
    set: (key, value) => { try { localStorage.setItem(PREFIX + key, JSON.stringify(value)); } catch { /* as without */ } },
    drop: (key) => { try { localStorage.removeItem(PREFIX + key); } catch { /* as without */ } },
  };
  const sent = {
    get: () => { try { return sessionStorage.getItem(SENT); } catch { return null; } },
    set: (key) => { try { sessionStorage.setItem(SENT, key); } catch { /* as without */ } },
  };
  try {
    for (const name of Object.keys(localStorage)) {
      const key = name.slice(PREFIX.length);
      if (name.startsWith(PREFIX) && !(Date.now() - kept.get(key)?.at < WEEK)) kept.drop(key);
    }
  } catch { /* as without */ }
  if (document.querySelector("[data-saved]")) {
    if (sent.get()) kept.drop(sent.get());
    history.replaceState(null, "", location.pathname);
  }
  // A frame is as high as its document. Whatever is not ours in it has none that we may see.
  const inside = (frame) => {
    try { return frame.contentDocument?.querySelector("body.framed-template") ?? null; } catch { return null; }
  };
  const fit = (frame) => {
    const body = inside(frame);
    if (!body) return;
    const resize = () => { if (inside(frame) === body) frame.style.height = `${body.scrollHeight + 2}px`; };
    new ResizeObserver(resize).observe(body);
    resize();
  };
  for (const frame of document.querySelectorAll("iframe.shown-template")) {
    frame.addEventListener("load", () => fit(frame));
    fit(frame);
  }

  const form = document.querySelector("form[data-editor]");
  if (form) {
    const key = form.dataset.editor, state = document.querySelector("[data-state]"), said = state.textContent;
    const shows = document.querySelector("[data-shows]"), rows = form.querySelector(".lines-of tbody");
    const offline = document.querySelector("[data-offline]"), box = document.getElementById("kept");
    const own = new Set(["csrf", "channel", "id", "shown"]);
    const fields = () => Object.fromEntries([...new FormData(form)].filter(([name]) => !own.has(name)));
    const nameOf = (row) => row.querySelector("[name^='variable.']");
    const exampleOf = (row) => row.querySelector("[name^='example.']");
    const first = JSON.stringify(fields());
    const isChanged = () => "typed" in form.dataset || JSON.stringify(fields()) !== first;
    let isSending = false, frame = document.querySelector("iframe[name=preview]"), made = 0, waiting;

    // -- variables: one empty row at the end, and a row for each that the text names --
    const addRow = () => {
      const row = rows.lastElementChild.cloneNode(true), at = rows.children.length;
      for (const field of row.querySelectorAll("input")) {
        field.name = field.name.replace(/\d+$/, at);
        field.setAttribute("aria-label", field.getAttribute("aria-label").replace(/\d+/, at + 1));
        field.checked = false;
        if (field.type === "checkbox") continue;
        field.value = "";
        if (/^(variable|example)/.test(field.name)) field.placeholder = field.name.startsWith("variable") ? "Name" : "";
      }
      for (const number of row.querySelectorAll(".no")) number.textContent = at + 1;
      delete row.dataset.byItself;
      rows.append(row);
      return row;
    };
    const keepEmptyRow = () => { if (rows && nameOf(rows.lastElementChild).value && rows.children.length < 101) addRow(); };
    const declare = (used, guesses, lists) => {
      let changed = false;
      if (!rows) return changed;  // a layout has none
      const isLeft = (row) => exampleOf(row).value === row.dataset.byItself && !used.includes(nameOf(row).value);
      for (const row of [...rows.children].filter(isLeft)) { for (const field of row.querySelectorAll("input:not([type=checkbox])")) field.value = ""; delete row.dataset.byItself; changed = true; }
      const declared = [...rows.children].map((row) => nameOf(row).value.trim().replace(/^customer\./, ""));
      for (const name of used.filter((one) => !declared.includes(one))) {
        const row = [...rows.children].find((one) => !nameOf(one).value && !exampleOf(one).value);
        if (!row) break;
        nameOf(row).value = name;
        exampleOf(row).placeholder = "Example";
        row.dataset.byItself = exampleOf(row).value = guesses[name] ?? "";
        if (name in lists) row.querySelector("[name^='fields.']").value = lists[name];
        changed = true;
        keepEmptyRow();
      }
      return changed;
    };

    // -- the preview: the Preview button is pressed for a fresh frame that then takes the old one's place --
    const note = (body) => {  // what the linter says of the words in the frame, at the part that they are in
      for (const field of form.querySelectorAll(".panel :is(input, textarea)")) {
        const which = field.value.trim() ? "li" : "li:not(.error)";  // what is still empty is not wrong yet
        const found = [...body.querySelectorAll(`.problems ${which}[data-field="${CSS.escape(field.name)}"]`)];
        let list = form.querySelector(`[data-problems="${CSS.escape(field.name)}"]`);
        if (!list && found.length) {
          list = document.createElement("ul");
          list.className = "problems";
          list.dataset.problems = field.name;
          field.closest(".field").after(list);
        }
        list?.replaceChildren(...found.map((one) => {
          const line = document.createElement("li");
          line.className = one.className;
          if (one.dataset.line) line.dataset.line = one.dataset.line;
          line.append(one.dataset.line ? `Line ${one.dataset.line}: ` : "", one.dataset.text);
          return line;
        }));
        for (const one of found) one.hidden = true;  // it is said once
        field.dispatchEvent(new Event("problems"));
      }
    };
    const settle = () => {
      const body = inside(frame);
      offline.hidden = Boolean(body);
      fit(frame);
      if (body) note(body);
      if (body && declare(body.dataset.used.split(" ").filter(Boolean), JSON.parse(body.dataset.guesses), JSON.parse(body.dataset.fields))) { keep(); later(); }
    };
    const show = (more = "") => {
      if (isSending) return;
      const fresh = frame.cloneNode(), number = ++made;
      for (const name of ["src", "srcdoc"]) fresh.removeAttribute(name);
      fresh.name = shows.formTarget = `preview-${number}`;
      fresh.hidden = true;
      frame.after(fresh);
      shows.setAttribute("formaction", action + more);
      form.requestSubmit(shows);
      fresh.addEventListener("load", () => {
        if (number !== made) { fresh.remove(); return; }
        const top = document.documentElement.scrollTop;
        fresh.style.height = frame.style.height;
        frame.remove();
        fresh.hidden = false;
        frame = fresh;
        document.documentElement.scrollTop = top;
        settle();
      }, { once: true });
    };
    const later = () => { clearTimeout(waiting); waiting = setTimeout(() => show(), 300); };
    const action = shows.getAttribute("formaction");

    // -- nothing is lost: kept here until the server has it --
    const keep = () => {
      const changed = isChanged();
      state.textContent = changed ? "Unsaved changes" : said;
      if (changed) kept.set(key, { at: Date.now(), fields: fields() });
      else kept.drop(key);
    };
    const old = kept.get(key);
    if (old && JSON.stringify(old.fields) !== first) {
      box.querySelector("[data-kept-at]").textContent = ago(new Date(old.at + offset));
      box.querySelector("[data-kept-old]").hidden = !old.fields.mark || old.fields.mark === form.elements.mark.value;
      box.hidden = "typed" in form.dataset;
    }
    box.querySelector("[data-kept-take]").addEventListener("click", () => {
      while (rows?.children.length < 101 && `variable.${rows.children.length - 1}` in old.fields) addRow();
      for (const field of form.elements) {
        if (!field.name || own.has(field.name) || field.type === "submit") continue;
        if (field.type === "checkbox") field.checked = field.name in old.fields;
        else field.value = old.fields[field.name] ?? "";
      }
      box.hidden = true;
      keep();
      show();
    });
    box.querySelector("[data-kept-drop]").addEventListener("click", () => { kept.drop(key); box.hidden = true; keep(); });

    // From here on the preview says what is wrong.
    const errorBox = document.getElementById("wrong");
    form.addEventListener("input", ({ target }) => {
      keepEmptyRow();
      if (box.hidden) keep();
      errorBox?.remove();
      const field = target.closest(".field.wrong");
      field?.classList.remove("wrong");
      field?.querySelector(".error")?.remove();
      target.removeAttribute("aria-invalid");
      later();
    });
    form.addEventListener("submit", (event) => {
      if (event.submitter === shows) return;
      if (isSending) { event.preventDefault(); return; }
      keep();
      sent.set(key);
      isSending = true;
    });
    addEventListener("beforeunload", (event) => { if (!isSending && isChanged()) event.preventDefault(); });
    addEventListener("pageshow", () => { isSending = false; });
    shows.parentElement.classList.add("by-itself");  // then the button only leads to the preview, where that is far below
    shows.addEventListener("click", (event) => {
      event.preventDefault();
      show();
      document.querySelector(".shows").scrollIntoView();
    });
    frame.addEventListener("load", settle);
    if (inside(frame)) settle();
    if ("typed" in form.dataset) { keep(); show("?show_errors=yes"); }
  }
}
