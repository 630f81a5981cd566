// What pages gain with a script: local times, copy buttons, a question before a change, live regions. None needs it.
"use strict";
const showTimes = (root) => {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
  }
};
showTimes(document);
for (const place of document.querySelectorAll(".copyable")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(place.querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  place.append(button);
}
for (const form of document.querySelectorAll("form[data-ask]")) {
  form.addEventListener("submit", (event) => { if (!confirm(form.dataset.ask)) event.preventDefault(); });
}
// <section data-live="URL">: the server says when it changed, and the page's own copy of it is fetched anew.
for (const place of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(place.dataset.live);
  source.addEventListener("changed", async () => {
    const answer = await fetch(location.href, { headers: { "X-Part": place.id } });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(place.id);
    if (fresh) place.replaceChildren(...fresh.childNodes);
    showTimes(place);
  });
  source.addEventListener("done", () => source.close());
}
// <form data-preview="frame">: while it is typed in, its Preview button is pressed for a fresh frame that then takes the
// old one's place; so nothing flickers and the browser's history stays as it is.
for (const form of document.querySelectorAll("form[data-preview]")) {
  const button = form.querySelector("[data-shows]");
  let frame = document.querySelector(`iframe[name="${form.dataset.preview}"]`), made = 0, waiting;
  form.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const fresh = frame.cloneNode();
      fresh.removeAttribute("src");
      fresh.name = button.formTarget = `preview-${++made}`;
      fresh.hidden = true;
      frame.after(fresh);
      button.click();
      fresh.addEventListener("load", () => { frame.remove(); fresh.hidden = false; frame = fresh; }, { once: true });
    }, 300);
  });
}
