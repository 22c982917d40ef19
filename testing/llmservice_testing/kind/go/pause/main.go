// Command pause holds a pod's namespaces: it does nothing until it is told to end, and buries what others leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	orphaned := make(chan os.Signal, 1)
	signal.Notify(orphaned, syscall.SIGCHLD)
	for {
		select {
		case <-ended:
			return
		case <-orphaned:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 && err != syscall.EINTR {
					break
				}
			}
		}
	}
}
