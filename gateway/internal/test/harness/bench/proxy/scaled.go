//go:build linux

package proxy

import (
	"fmt"
	"net/netip"
	"strings"
)

// Scaled returns the subjects that may use several processors: nginx with as many workers, and the gateway with each
// driver. They serve Place.Games on Place.CPUs.
func Scaled() []Subject {
	list := []Subject{{Name: NGINX, Title: "nginx, a worker for each", start: scaledNGINX}}
	for _, driver := range []string{"poll", "net"} {
		list = append(list,
			Subject{Name: "plain@" + driver, Title: "**Reseat**, plain clients, " + driver + " driver", start: scaledGateway(driver)},
			Subject{Name: Reseat + "@" + driver, Title: "**Reseat**, " + driver + " driver", Resumable: true, start: scaledGateway(driver)})
	}
	return list
}

func scaledGateway(driver string) starter {
	return func(p Place, addr netip.AddrPort) (*Proxy, error) {
		argv := []string{p.Reseat, "--listen", addr.String(), "--log-level", "warn", "--admin", "off", "--driver", driver}
		for i, g := range p.Games {
			argv = append(argv, fmt.Sprintf("--route=/%d/*=ws://%s", i, g))
		}
		return start(p, addr, 1, argv...)
	}
}

func scaledNGINX(p Place, addr netip.AddrPort) (*Proxy, error) {
	conf := fmt.Sprintf(nginxConf, p.Dir, p.Files, p.Games[0], addr, " reuseport")
	conf = strings.Replace(conf, "worker_processes 1;", fmt.Sprintf("worker_processes %d;", p.CPUs), 1)
	begin := strings.Index(conf, "location / {")
	end := begin + strings.Index(conf[begin:], "}") + 1
	location := conf[begin:end]
	var all strings.Builder
	for i, g := range p.Games {
		one := strings.Replace(location, "location /", fmt.Sprintf("location /%d/", i), 1)
		all.WriteString(strings.Replace(one, "http://game", "http://"+g.String(), 1) + "\n")
	}
	return p.runNGINX(addr, conf[:begin]+all.String()+conf[end:], p.CPUs)
}
