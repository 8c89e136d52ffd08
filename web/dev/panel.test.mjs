// The panel in a page that consists of it alone, before a gateway that answers as told. What it looks like, and what
// browsers make of it, is for the end-to-end tests.
import assert from 'node:assert/strict';
import { test } from 'node:test';

/** As much of an element as the panel uses. */
class Element extends EventTarget {
  attributes = {};
  children = [];
  dataset = {};
  style = { setProperty() {} };
  text = '';

  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  hasAttribute(name) {
    return name in this.attributes;
  }
  get hidden() {
    return this.hasAttribute('hidden');
  }
  set hidden(on) {
    if (on) this.attributes.hidden = '';
    else delete this.attributes.hidden;
  }
  get checked() {
    return this.hasAttribute('checked');
  }
  append(...content) {
    for (const each of content) {
      each.remove?.();
      this.children.push(each);
      if (typeof each === 'object') each.parentElement = this;
    }
  }
  prepend(each) {
    this.children.unshift(each);
    each.parentElement = this;
  }
  remove() {
    const { children } = this.parentElement ?? { children: [] };
    if (children.includes(this)) children.splice(children.indexOf(this), 1);
  }
  get lastElementChild() {
    return this.children.at(-1);
  }
  get textContent() {
    return this.text + this.children.map((each) => each.textContent ?? each).join('');
  }
  set textContent(text) {
    this.children = [];
    this.text = text;
  }
  attachShadow() {
    this.shadow = new Element();
    return this.shadow;
  }
  querySelector() {
    return { focus() {} };
  }
  focus() {}
  getBoundingClientRect() {
    return { width: 300, height: 500 };
  }
  /** The first element below it that fits. */
  find(fits) {
    for (const each of this.children)
      if (each instanceof Element) {
        const found = fits(each) ? each : each.find(fits);
        if (found) return found;
      }
    return undefined;
  }
}

const page = new EventTarget();
Object.assign(globalThis, {
  HTMLElement: Element,
  CSSStyleSheet: class {
    replaceSync() {}
  },
  document: Object.assign(new Element(), {
    createElement: () => new Element(),
    documentElement: new Element(),
    baseURI: 'http://gateway:8080/',
  }),
  location: { host: 'gateway:8080', origin: 'http://gateway:8080', pathname: '/' },
  addEventListener: page.addEventListener.bind(page),
  dispatchEvent: page.dispatchEvent.bind(page),
  devicePixelRatio: 1,
  innerWidth: 1000,
  innerHeight: 800,
});
document.querySelector = () => null;
const { Links } = await import('./links.js');
const { ReseatDev } = await import('./panel.js');

/** What the gateway says of a session without messages. */
const SAID = { acked: 0, sent: 0, received: 0, written: 0, buffer_messages: 0, buffer_bytes: 0 };

/** A page with one session; answer is the gateway's. */
function open(t, answer = () => ({ status: 204 })) {
  const ticks = [];
  t.mock.method(globalThis, 'setInterval', (tick) => ticks.push(tick));
  t.mock.method(globalThis, 'setTimeout', () => 0);
  const asked = [];
  t.mock.method(globalThis, 'fetch', async (url, { method = 'GET', headers, body }) => {
    const { pathname } = new URL(url);
    if (pathname.endsWith('/session')) return { status: 200, ok: true, json: async () => SAID };
    asked.push([method, headers.Authorization, body && JSON.parse(body)]);
    const { status, text = '' } = await answer(method);
    return { status, ok: status < 300, text: async () => text };
  });
  const links = new Links();
  const link = links.of('s', 'ws://gateway:8080/play');
  const socket = Object.assign(new EventTarget(), { send() {}, close() {}, bufferedAmount: 0 });
  link.adopt(socket);
  link.token = 'token';
  ReseatDev.links = links;
  const dev = new ReseatDev();
  dev.connectedCallback();
  const tick = () => ticks.forEach((each) => each());
  const button = (name) => dev.shadow.find((each) => each.textContent === name && each.attributes.type === 'button');
  const story = () =>
    dev.shadow
      .find((each) => each.attributes['data-testid'] === 'story')
      .children.map((each) => each.textContent.slice(9));
  const notice = () => dev.shadow.find((each) => each.attributes['data-testid'] === 'cut-notice').textContent;
  const badge = () => dev.shadow.find((each) => each.attributes.class === 'badge').textContent;
  const part = (name) => dev.shadow.find((each) => each.attributes['data-part'] === name).textContent;
  const press = async (name) => {
    button(name).dispatchEvent(new Event('click'));
    for (let n = 0; n < 20; n++) await null; // until the answer is read
  };
  return { dev, links, link, socket, asked, tick, press, story, notice, badge, part };
}

test('each button begins its fault on the session of the page', async (t) => {
  const { press, asked } = open(t);
  const buttons = {
    Tunnel: { fault: 'tunnel' },
    'Wi-Fi to LTE': { fault: 'wifi-to-lte' },
    'Laptop sleep': { fault: 'laptop-sleep' },
    'Bad hotel Wi-Fi': { fault: 'hotel-wifi' },
    Elevator: { fault: 'elevator' },
    'Silence 8 s': { fault: 'silence', for: '8s' },
    'Silence up': { fault: 'silence', for: '8s', direction: 'up' },
    'Silence down': { fault: 'silence', for: '8s', direction: 'down' },
    Reset: { fault: 'reset' },
    'Close cleanly': { fault: 'close' },
    'Airplane mode': { fault: 'airplane', for: '60s' },
  };
  for (const name of Object.keys(buttons)) await press(name);
  assert.deepEqual(
    asked,
    Object.values(buttons).map((fault) => ['POST', 'Bearer token', fault]),
  );
});

test('the story begins with the fault, though its effects come before the answer', async (t) => {
  const { press, story, socket } = open(t, () => {
    socket.dispatchEvent(new Event('detach'));
    return { status: 204 };
  });
  await press('Reset');
  assert.deepEqual(story(), ['Connection lost. The client reconnects.', 'Reset.']);
});

test('a refused fault is no part of the story, nor of the report', async (t) => {
  const { press, story, notice, dev } = open(t, () => ({ status: 409, text: 'not now' }));
  await press('Reset');
  assert.deepEqual([story(), notice(), dev.report().runs[0].cuts], [[], 'The gateway refuses: not now', []]);
});

test('a fault that no button began is called by its members', async (t) => {
  const { dev } = open(t);
  for (const fault of [{ fault: 'airplane', for: '5s' }, { fault: 'silence', for: '1s' }, { fault: 'reset' }])
    await dev.cut(fault);
  assert.deepEqual(
    dev.report().runs[0].cuts.map(({ name }) => name),
    ['airplane 5s', 'silence 1s', 'Reset'],
  );
});

test('in airplane mode the browser is offline to the page, and again online after it', async (t) => {
  const { press, asked } = open(t);
  const told = [];
  for (const type of ['offline', 'online']) addEventListener(type, () => told.push(type));
  await press('Airplane mode');
  assert.deepEqual(told, ['offline']);
  await press('Reset');
  await press('End all faults');
  assert.deepEqual(told, ['offline', 'online']);
  assert.equal(asked.at(-1)[0], 'DELETE');
  await press('End all faults');
  assert.deepEqual(told, ['offline', 'online'], 'once');
});

test('no figure is shown before the gateway has said its own', async (t) => {
  const { dev, tick, part } = open(t);
  dev.toggle(true);
  assert.equal(part('missed'), '–');
  tick();
  for (let n = 0; n < 20; n++) await null;
  tick();
  assert.equal(part('missed'), '0');
});

test('a socket that the page has left does not make the badge say closed, one that was lost does', (t) => {
  const { tick, badge, links, socket } = open(t);
  socket.close();
  socket.dispatchEvent(Object.assign(new Event('close'), { code: 1005, reason: '' }));
  links.of('next', 'ws://gateway:8080/match').adopt(Object.assign(new EventTarget(), { send() {}, close() {} }));
  tick();
  assert.equal(badge(), 'Reseat: connected');
  links.all[1].socket.dispatchEvent(Object.assign(new Event('close'), { code: 4404, reason: '' }));
  tick();
  assert.equal(badge(), 'Reseat: closed');
});

test('a page that connects past the gateway is told so', (t) => {
  const { tick, notice, badge, links } = open(t);
  links.all.length = 0;
  Object.assign(links, { host: 'gateway:8080', elsewhere: 'localhost:9000' });
  tick();
  assert.equal(badge(), 'Reseat: not used');
  assert.match(notice(), /^This page connects to localhost:9000, past the gateway\. Name gateway:8080 there/);
});

test('faults of a page whose plain socket is lost begin and end all the same', async (t) => {
  const { press, asked, links } = open(t);
  links.all.length = 0;
  const link = links.plain('ws://gateway:8080/play');
  link.open({ readyState: 1 });
  link.opened();
  link.closed(1006, '');
  await press('Tunnel');
  await press('End all faults');
  assert.deepEqual(
    asked.map(([method, proof]) => [method, proof]),
    [
      ['POST', `Page ${links.key}`],
      ['DELETE', `Page ${links.key}`],
    ],
  );
});
