package upgrade

import (
	"runtime"
	"sync"

	"reseat/gateway/handover"
)

// A decoder decodes messages with sessions on all processors, and restores the sessions in
// the order of the messages: all of them stand still meanwhile.
type decoder struct {
	decode  func(*handover.Message) ([]Decoded, error)
	restore func([]Decoded) error
	slots   chan struct{}     // one for each message that is being decoded
	order   chan chan decoded // of the messages
	ended   chan error        // what went wrong first
	end     sync.Once
	err     error
}

type decoded struct {
	list []Decoded
	err  error
}

// decoderQueue bounds the messages that wait to be restored.
const decoderQueue = 64

func newDecoder(decode func(*handover.Message) ([]Decoded, error), restore func([]Decoded) error) *decoder {
	d := &decoder{decode: decode, restore: restore, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), order: make(chan chan decoded, decoderQueue), ended: make(chan error, 1)}
	go d.run()
	return d
}

// put adds a message, whose descriptors are the decoder's from here on.
func (d *decoder) put(m handover.Message) {
	done := make(chan decoded, 1)
	d.order <- done
	d.slots <- struct{}{}
	go func() {
		list, err := d.decode(&m)
		<-d.slots
		done <- decoded{list, err}
	}()
}

func (d *decoder) run() {
	var first error
	for done := range d.order {
		m := <-done
		err := m.err
		if first != nil {
			for _, s := range m.list {
				closeEnds(s.Moved)
			}
			continue
		}
		if e := d.restore(m.list); err == nil {
			err = e
		}
		first = err
	}
	d.ended <- first
}

// finish waits until all sessions have been restored, and returns what went wrong first.
// Nothing may be put afterwards.
func (d *decoder) finish() error {
	d.end.Do(func() {
		close(d.order)
		d.err = <-d.ended
	})
	return d.err
}
