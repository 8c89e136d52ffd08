package transport_test

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// BenchmarkRelay relays messages of 128 bytes down and as many of 48 bytes up on 32
// sessions: one each way per operation, or 32 at once. Its figures include the peers, the
// same for each driver.
func BenchmarkRelay(b *testing.B) {
	const relayed = 32
	for name, n := range map[string]int{"one": 1, "burst": 32} {
		for driver, kind := range kinds {
			b.Run(name+"/"+driver, func(b *testing.B) {
				d := newDriver(b, kind)
				var clients, games [relayed]net.Conn
				for i := range relayed {
					r := newRig(b, d, zeroKey)
					clients[i], games[i] = r.client, r.game
				}
				got := make([]byte, 8<<10)
				pass := func(from, to [relayed]net.Conn, sent []byte) {
					for _, c := range from {
						c.Write(sent)
					}
					for _, c := range to {
						if _, err := io.ReadFull(c, got[:len(sent)]); err != nil {
							b.Fatal(err)
						}
					}
				}
				down, up := bytes.Repeat(numbered(nil, 1, 128, false), n), bytes.Repeat(numbered(nil, 1, 48, true), n)
				for b.Loop() {
					pass(games, clients, down)
					pass(clients, games, up)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*2*relayed*n), "ns/message")
			})
		}
	}
}
