// The fields of a template's text: line numbers, colours for tags and placeholders, problems in the margin, indentation
// and the Insert menu. The drawing lies behind the text field, which stays what is typed in, sent and read aloud.
"use strict";
{
  const LONGEST = 60000;  // characters that are drawn at every key
  const TOKEN = /(\{\{.*?(?:\}\}|$))|(<!--.*?(?:-->|$))|(<\/?[a-z][\w:-]*|\/?>)/gi;
  const KINDS = ["placeholder", "comment", "tag"];
  const insert = (text) => document.execCommand("insertText", false, text);  // can be undone
  const drawn = (text, isHtml) => {
    const line = document.createElement("div");
    let at = 0;
    for (const found of text.matchAll(TOKEN)) {
      const kind = KINDS[[1, 2, 3].findIndex((group) => found[group] !== undefined)];
      if (kind !== "placeholder" && !isHtml) continue;
      const span = document.createElement("span");
      span.className = kind;
      span.textContent = found[0];
      line.append(text.slice(at, found.index), span);
      at = found.index + found[0].length;
    }
    line.append(text.slice(at) || (at ? "" : "\u200b"));
    return line;
  };
  const surface = (field) => {
    const isHtml = field.name.endsWith("html"), box = document.createElement("div"), back = document.createElement("div");
    box.className = "code";
    back.className = "drawn";
    back.setAttribute("aria-hidden", "true");
    field.before(box);
    box.append(back, field);
    const scroll = () => { back.scrollTop = field.scrollTop; };
    const draw = () => {
      const isLong = field.value.length > LONGEST;
      box.classList.toggle("plain", isLong);
      back.replaceChildren(...(isLong ? [] : field.value.split("\n").map((line) => drawn(line, isHtml))));
      back.style.font = getComputedStyle(field).font;
      back.style.width = `${field.clientWidth}px`;
      mark();
      scroll();
    };
    const mark = () => {
      const lines = [...document.querySelectorAll(`[data-problems="${CSS.escape(field.name)}"] [data-line]`)];
      for (const line of back.querySelectorAll(".noted")) line.classList.remove("noted");
      for (const one of lines) back.children[one.dataset.line - 1]?.classList.add("noted");
    };
    // Ctrl+] indents and Enter keeps the indentation; Tab leaves the field.
    field.addEventListener("keydown", (event) => {
      const line = field.value.slice(0, field.selectionStart).split("\n").at(-1);
      const indentation = isHtml && event.key === "Enter" && !event.isComposing ? line.match(/^[ \t]*/)[0] : "";
      const isIndent = event.key === "]" && (event.ctrlKey || event.metaKey);
      if (!indentation && !isIndent) return;
      event.preventDefault();
      insert(isIndent ? "  " : `\n${indentation}`);
    });
    field.addEventListener("input", draw);
    field.addEventListener("scroll", scroll);
    field.addEventListener("problems", mark);
    new ResizeObserver(draw).observe(field);
    draw();
  };
  for (const field of document.querySelectorAll("form[data-editor] .panel textarea")) surface(field);

  // The Insert menu of a panel writes into the field that had the focus last. It stands above the fields, so those that
  // are passed with Shift+Tab on the way to the menu do not count until something is typed there.
  for (const menu of document.querySelectorAll("[data-insert-menu]")) {
    const panel = menu.closest(".panel");
    let field = panel.querySelector("textarea");
    menu.hidden = false;
    let isPassing = false;
    panel.addEventListener("keydown", ({ key, shiftKey }) => { isPassing = key === "Tab" && shiftKey; });
    panel.addEventListener("pointerdown", () => { isPassing = false; });
    for (const name of ["focusin", "input"]) {
      panel.addEventListener(name, ({ target }) => {
        if (target.matches("textarea, input") && !(isPassing && name === "focusin")) field = target;
      });
    }
    menu.addEventListener("click", ({ target }) => {
      const text = target.dataset.insert;
      if (!text) return;
      menu.open = false;
      field.focus();
      const start = field.selectionStart;
      insert(text);
      const name = text.match(/name|items|date|amount/);
      if (name) field.setSelectionRange(start + name.index, start + name.index + name[0].length);
    });
  }
}
