// Passkeys: asks the browser for one, and sends its answer with the form. Without a script these forms stay hidden.
"use strict";
{
  const octets = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  const base64url = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  // Browsers convert this natively since 2024 only.
  const opened = (options) => {
    const known = (list) => list?.map((one) => ({ ...one, id: octets(one.id) }));
    const given = { ...options, challenge: octets(options.challenge) };
    if (given.user) given.user = { ...given.user, id: octets(given.user.id) };
    if (given.excludeCredentials) given.excludeCredentials = known(given.excludeCredentials);
    if (given.allowCredentials) given.allowCredentials = known(given.allowCredentials);
    return given;
  };
  const written = ({ id, rawId, type, response }) => {
    const parts = {};
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (response[name]) parts[name] = base64url(response[name]);
    }
    return JSON.stringify({ id, rawId: base64url(rawId), type, response: parts, clientExtensionResults: {} });
  };
  const WORDS = {
    NotAllowedError: "No passkey was selected. Try again.",
    InvalidStateError: "This device already has a passkey for this account.",
  };
  const ask = async (form) => {
    const answer = await fetch(form.dataset.passkey);
    if (!answer.ok) throw new Error(answer.status);
    const publicKey = opened(await answer.json());
    const { credentials } = navigator;
    const made = await (publicKey.user ? credentials.create({ publicKey }) : credentials.get({ publicKey }));
    form.elements.credential.value = written(made);
    form.submit();
  };
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    const hint = form.nextElementSibling;
    if (!window.PublicKeyCredential) {
      hint.textContent = "This browser doesn't support passkeys.";
      continue;
    }
    [form.hidden, hint.hidden] = [false, true];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const problem = form.querySelector(".problem");
      problem.hidden = true;
      ask(form).catch((error) => {
        problem.hidden = false;
        problem.textContent = WORDS[error.name] ?? "Something went wrong. Try again in a moment.";
      });
    });
  }
}
