// Four programs of a Kubernetes control plane in one binary, for tests: it links what they share once, so that it is
// built in minutes and kept as one file. The first argument names the program; the rest are that program's own flags.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs with time zones, on machines without a database of them

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Each takes the arguments with its own name first, as if it were a binary of its own, and returns its exit status.
var programs = map[string]func(arguments []string) int{
	"etcd": func(arguments []string) int {
		etcdmain.Main(arguments)
		return 0
	},
	"kube-apiserver":          func([]string) int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func([]string) int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func([]string) int { return cli.Run(scheduler.NewSchedulerCommand()) },
}

func main() {
	if len(os.Args) >= 2 {
		if program, known := programs[os.Args[1]]; known {
			os.Args = os.Args[1:] // the libraries read their flags from here
			os.Exit(program(os.Args))
		}
	}
	names := slices.Sorted(maps.Keys(programs))
	fmt.Fprintf(os.Stderr, "wrong use: name a program first: %s\n", strings.Join(names, ", "))
	os.Exit(2)
}
