package server

import (
	"fmt"
	"net"
	"os"
	"strings"
)

// notifySystemd notifies systemd that this process serves, and is the main process of its unit:
// sd_notify(3). It does nothing if the process was not started by a unit of Type=notify.
func notifySystemd(environ []string) error {
	for _, e := range environ {
		path, ok := strings.CutPrefix(e, "NOTIFY_SOCKET=")
		if !ok || path == "" {
			continue
		}
		if path[0] == '@' {
			path = "\x00" + path[1:]
		}
		c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			return fmt.Errorf("NOTIFY_SOCKET: %w", err)
		}
		defer c.Close()
		_, err = fmt.Fprintf(c, "MAINPID=%d\nREADY=1\n", os.Getpid())
		return err
	}
	return nil
}
