//go:build linux

package main

import (
	"context"
	"errors"
	"time"

	"reseat/gateway/internal/test/harness/bench/proxy"
)

const (
	calmCores  = 0.15 // how much others may use of the machine
	calmWindow = 250 * time.Millisecond
	attempts   = 3
)

// A calm keeps the load of other processes out of the figures: before a measurement it
// waits until the machine is idle, and it repeats a measurement that was disturbed. The
// measured values play no part in either. The total extra time is limited.
type calm struct {
	left      time.Duration
	meanwhile func() error // called now and then; nil: nothing
}

// await waits until the machine is idle.
func (c *calm) await(ctx context.Context) {
	for c.left > 0 && ctx.Err() == nil {
		before, err := proxy.MachineNow()
		time.Sleep(calmWindow)
		after, err2 := proxy.MachineNow()
		c.left -= calmWindow
		if c.meanwhile != nil {
			err = errors.Join(err, c.meanwhile()) // the measurement will find the fault, too
		}
		if err != nil || err2 != nil || (after.Busy-before.Busy).Seconds() < calmCores*calmWindow.Seconds() {
			return
		}
	}
}

// rest lets a time pass in which nothing is measured.
func (c *calm) rest(ctx context.Context, d time.Duration) error {
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(min(calmWindow, time.Until(end)))
		if err := c.meanwhile(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// measure repeats measurements that belong together until none is disturbed. Their figures
// say how often that was.
func (c *calm) measure(ctx context.Context, once func() ([]figures, error)) ([]figures, error) {
	for try := 1; ; try++ {
		c.await(ctx)
		began := time.Now()
		figs, err := once()
		if err != nil {
			return nil, err
		}
		disturbed := false
		for _, fig := range figs {
			fig["tries"] = float64(try)
			disturbed = disturbed || fig["other_cores"]+fig["steal_cores"] >= calmCores
		}
		if !disturbed || try == attempts || c.left <= 0 {
			return figs, nil
		}
		c.left -= time.Since(began)
	}
}
