// A certified OpenID provider (the npm package oidc-provider) with a few people in it. Arguments: its port, our address.
import Provider from "oidc-provider";

const [port, ours] = process.argv.slice(2);
const people = {
  ada: { email: "ada@id.test", email_verified: true, name: "Ada at ID", groups: ["acme-owners", "staff"] },
  vi: { email: "vi@id.test", email_verified: true, name: "Vi at ID", groups: ["acme-viewers"] },
  root: { email: "root@id.test", email_verified: true, name: "Root at ID", groups: ["ops"] },
  eve: { email: "ada@id.test", email_verified: false, name: "Eve", groups: ["ops"] },
  stranger: { email: "stranger@id.test", email_verified: true, name: "Stranger", groups: ["staff"] },
};
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "heliograph",
    client_secret: "kept in a file",
    redirect_uris: [`${ours}/dashboard/sign-in/callback`],
    post_logout_redirect_uris: [`${ours}/dashboard/sign-in`],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"], groups: ["groups"] },
  pkce: { required: () => true },
  cookies: { keys: ["for a test"] },
  findAccount: (_, id) => people[id] && { accountId: id, claims: () => ({ sub: id, ...people[id] }) },
});
provider.on("server_error", (_, error) => console.error(error));
provider.on("grant.error", (_, error) => console.error(error));
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
