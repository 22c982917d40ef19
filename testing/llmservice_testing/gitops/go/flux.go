package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"
	"github.com/fluxcd/pkg/ssa/normalize"
	"github.com/fluxcd/pkg/ssa/utils"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

const (
	controller = "kustomize-controller"
	group      = "kustomize.toolkit.fluxcd.io"
)

// repeated collects the values of a flag that may be given several times.
type repeated []string

func (values *repeated) String() string { return strings.Join(*values, ",") }

func (values *repeated) Set(value string) error {
	*values = append(*values, value)
	return nil
}

// fluxApply reconciles the objects once, as a Flux Kustomization does at every interval, and tells for each what was
// done: created, configured, unchanged or skipped.
func fluxApply(arguments []string) (any, error) {
	flags := flag.NewFlagSet("flux-apply", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster")
	timeout := flags.Duration("timeout", 30*time.Second, "when to give up")
	var ignored, disallowed repeated
	flags.Var(&ignored, "ignore", "a JSON pointer, as in the Kustomization's spec.ignore; may be repeated")
	flags.Var(&disallowed, "override-manager", "as the controller's flag; may be repeated")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	manager, err := newManager(*kubeconfig)
	if err != nil {
		return nil, err
	}
	objects, err := utils.ReadObjects(os.Stdin)
	if err != nil {
		return nil, err
	}
	if err := normalize.UnstructuredList(objects); err != nil {
		return nil, err
	}
	manager.SetOwnerLabels(objects, "test", "flux-system")
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	changes, err := manager.ApplyAllStaged(ctx, objects, optionsOfTheController(ignored, disallowed))
	if err != nil {
		return nil, err
	}
	done := map[string]string{}
	for _, change := range changes.Entries {
		done[change.ObjMetadata.Name] = change.Action.String()
	}
	return done, nil
}

// fluxWait waits as a Flux Kustomization with `wait: true` does, for objects that were applied.
func fluxWait(arguments []string) (any, error) {
	flags := flag.NewFlagSet("flux-wait", flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the cluster")
	timeout := flags.Duration("timeout", 30*time.Second, "the Kustomization's spec.timeout")
	if err := flags.Parse(arguments); err != nil {
		return nil, err
	}
	manager, err := newManager(*kubeconfig)
	if err != nil {
		return nil, err
	}
	objects, err := utils.ReadObjects(os.Stdin)
	if err != nil {
		return nil, err
	}
	options := ssa.WaitOptions{Interval: 200 * time.Millisecond, Timeout: *timeout, FailFast: true}
	return "healthy", manager.Wait(objects, options)
}

// optionsOfTheController are those that kustomize-controller 1.9 applies with.
func optionsOfTheController(ignored, disallowed []string) ssa.ApplyOptions {
	ssaAnnotation := group + "/ssa"
	options := ssa.DefaultApplyOptions()
	options.ExclusionSelector = map[string]string{group + "/reconcile": "Disabled", ssaAnnotation: "Ignore"}
	options.IfNotPresentSelector = map[string]string{ssaAnnotation: "IfNotPresent"}
	options.ForceSelector = map[string]string{group + "/force": "Enabled"}
	if len(ignored) > 0 {
		options.DriftIgnoreRules = []jsondiff.IgnoreRule{{Paths: ignored}}
	}
	managers := []ssa.FieldManager{
		{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
		{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
		{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
		{Name: controller, OperationType: metav1.ManagedFieldsOperationUpdate},
	}
	for _, name := range disallowed {
		managers = append(managers,
			ssa.FieldManager{Name: name, OperationType: metav1.ManagedFieldsOperationApply},
			ssa.FieldManager{Name: name, OperationType: metav1.ManagedFieldsOperationUpdate})
	}
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations:   []string{corev1.LastAppliedConfigAnnotation},
		FieldManagers: managers,
		Exclusions:    map[string]string{ssaAnnotation: "Merge"},
	}
	return options
}

func newManager(kubeconfig string) (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 200
	kubernetes, poller, err := clients(config)
	if err != nil {
		return nil, fmt.Errorf("no client for %s: %w", config.Host, err)
	}
	return ssa.NewResourceManager(kubernetes, poller, ssa.Owner{Field: controller, Group: group}), nil
}

func clients(config *rest.Config) (client.Client, *polling.StatusPoller, error) {
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(config, http)
	if err != nil {
		return nil, nil, err
	}
	kubernetes, err := client.New(config, client.Options{HTTPClient: http, Mapper: mapper})
	if err != nil {
		return nil, nil, err
	}
	return kubernetes, polling.NewStatusPoller(kubernetes, mapper, polling.Options{}), nil
}
