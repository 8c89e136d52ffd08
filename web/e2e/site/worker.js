// A worker that plays.
const { searchParams } = new URL(self.location.href);
const { ReseatSocket } = await import(`http://${searchParams.get('gateway')}/reseat.js`);
const socket = new ReseatSocket(searchParams.get('url'));
let messages = 0;
for (const type of ['open', 'resume', 'close']) socket.addEventListener(type, () => self.postMessage(type));
socket.addEventListener('message', () => self.postMessage(`message ${++messages}`));
self.onmessage = () => socket.close(3001, 'done');
