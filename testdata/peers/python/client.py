"""A WebSocket client in Python behind the gateway: client.py MODE URL CUTS.

MODE plain sends a hundred messages to an echo server and wants them back. MODE resumable
speaks reseat.v1, written from the protocol's page: it cuts its own connection again and
again, without a Close, and wants every message once and in order, both ways. It prints OK
or what is wrong.
"""

import asyncio
import json
import sys

import websockets

MESSAGES = 200


class Seat:
    """What a resumable client keeps over its connections. It knows no library."""

    def __init__(self):
        self.token = None
        self.received = 0  # of the game server's messages
        self.made = 0  # of our own
        self.acked = 0
        self.cursor = 0
        self.hellos = 0

    def protocols(self):
        if self.token is None:
            return ["reseat.v1"]
        return ["reseat.v1", "reseat.token." + self.token, "reseat.received.%d" % self.received]

    def take(self, message):
        """Takes a message in and returns what is to be answered."""
        if not isinstance(message, str) or not message.startswith("\x10") or message.startswith("\x10\x10"):
            text = message[1:] if isinstance(message, str) and message.startswith("\x10") else message
            self.received += 1
            want = text_of(self.received)
            if text != want:
                raise AssertionError("message %d is %r, want %r" % (self.received, text[:60], want[:60]))
            return ["\x10ack %d" % self.received] if self.received % 16 == 0 else []
        verb, _, arg = message[1:].partition(" ")
        if verb == "hello":
            return self.hello(json.loads(arg))
        if verb == "ack":
            self.acked = max(self.acked, int(arg))
        elif verb == "token":
            self.token = json.loads(arg)["token"]
        elif verb == "ping":
            return ["\x10ack %d" % self.received, ("\x10pong " + arg).rstrip()]
        elif verb in ("end", "close"):
            raise AssertionError("the gateway says %s %s" % (verb, arg))
        return []

    def hello(self, hello):
        if hello["lost"] or hello["resumed"] != (self.token is not None):
            raise AssertionError("hello %r" % hello)
        if not self.acked <= hello["received"] <= self.made:
            raise AssertionError("hello.received is %d of %d" % (hello["received"], self.made))
        self.token, self.cursor = hello["token"], hello["received"]
        self.hellos += 1
        return ["\x10ack %d" % self.received]

    def more(self, most):
        """The next messages of our own: first what the gateway lacks, then new ones."""
        out = []
        while len(out) < most and self.cursor < MESSAGES and self.cursor - self.acked < 500:
            self.cursor += 1
            self.made = max(self.made, self.cursor)
            text = text_of(self.cursor)
            out.append("\x10" + text if text.startswith("\x10") else text)
        return out

    def complete(self):
        return self.received == MESSAGES and self.acked == MESSAGES


def text_of(n):
    return ("\x10" if n % 7 == 0 else "") + "message %d " % n + "ä" * (n * 37 % 900)


async def plain(connection):
    for n in range(1, 101):
        await connection.send(text_of(n))
        got = await connection.recv()
        if got != text_of(n):
            raise AssertionError("sent %r, got %r" % (text_of(n)[:40], got[:40]))
        await connection.send(bytes(range(n)))
        if await connection.recv() != bytes(range(n)):
            raise AssertionError("binary message %d came back as another" % n)
    await connection.close()


async def resumable(connect, cuts):
    seat = Seat()
    while True:
        connection = await connect(seat.protocols())
        last = seat.hellos > cuts
        if await tenure(seat, connection, None if last else 5 + 13 * seat.hellos % 30):
            await connection.send("\x10bye")
            await connection.closed()
            return seat


async def tenure(seat, connection, patience):
    """Plays until all is there, or for so many messages, and then cuts the connection."""
    while True:
        message = await connection.recv()
        for answer in seat.take(message):
            await connection.send(answer)
        for own in seat.more(9):
            await connection.send(own)
        if patience is None and seat.complete():
            return True
        if patience is not None:
            patience -= 1
            if patience <= 0 or seat.complete():
                connection.cut()
                return False


class Connection:
    """One of the library's connections, which can also be cut: without a Close."""

    def __init__(self, ws):
        self.ws, self.send, self.recv, self.close, self.closed = ws, ws.send, ws.recv, ws.close, ws.wait_closed

    def cut(self):
        self.ws.transport.abort()


async def connect(url, protocols):
    return Connection(await websockets.connect(url, subprotocols=protocols or None, max_size=None, compression=None))


async def main(mode, url, cuts):
    if mode == "plain":
        await plain(await connect(url, []))
        print("OK plain")
        return
    seat = await resumable(lambda protocols: connect(url, protocols), cuts)
    print("OK %d connections, %d messages each way" % (seat.hellos, seat.received))


asyncio.run(asyncio.wait_for(main(sys.argv[1], sys.argv[2], int(sys.argv[3])), 60))
