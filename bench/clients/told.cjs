// Try each call and tell what became of it: one object of name → { answer } or { refused: { status, message } }.
module.exports = async (calls, read) => {
  const told = {};
  for (const [name, call] of Object.entries(calls)) {
    try {
      told[name] = { answer: (await call()) !== undefined };
    } catch (error) {
      told[name] = { refused: read(error) };
    }
  }
  console.log(JSON.stringify(told));
};
