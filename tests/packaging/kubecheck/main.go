// kubecheck renders the chart as `helm template` does, and judges each object as an API server would:
// strict decoding (an unknown or misspelled field is refused), defaults, and Kubernetes' own validation.
//
//	kubecheck CHART [VALUES.yaml]            prints the rendering
//	kubecheck -check FILE ...                judges the objects of files
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingvalidation "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
)

func main() {
	arguments := os.Args[1:]
	var err error
	if len(arguments) > 1 && arguments[0] == "-check" {
		for _, name := range arguments[1:] {
			err = errors.Join(err, check(name))
		}
	} else {
		err = render(arguments)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(arguments []string) error {
	chart, err := loader.Load(arguments[0])
	if err != nil {
		return err
	}
	values := chartutil.Values{}
	if len(arguments) > 1 {
		if values, err = chartutil.ReadValuesFile(arguments[1]); err != nil {
			return err
		}
	}
	release := chartutil.ReleaseOptions{Name: "rmqha", Namespace: "default", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValuesWithSchemaValidation(chart, values, release, chartutil.DefaultCapabilities, false)
	if err != nil {
		return err
	}
	files, err := engine.Engine{Strict: true}.Render(chart, all)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		text := strings.TrimSpace(files[name])
		if base := path.Base(name); base[0] != '_' && strings.HasSuffix(base, ".yaml") && text != "" {
			fmt.Printf("---\n%s\n", strings.TrimPrefix(text, "---\n"))
		}
	}
	return nil
}

func check(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	scheme := legacyscheme.Scheme
	if err := keda.AddToScheme(scheme); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
	var faults error
	for {
		text, err := reader.Read()
		if err == io.EOF {
			return faults
		}
		if err != nil {
			return err
		}
		if isComment(text) {
			continue
		}
		object, kind, err := decoder.Decode(text, nil, nil)
		if err != nil {
			faults = errors.Join(faults, fmt.Errorf("%s: %w\n%.200s", name, err, text))
			continue
		}
		scheme.Default(object)
		title := kind.Kind + " " + object.(metav1.Object).GetName()
		for _, fault := range judge(scheme, object) {
			faults = errors.Join(faults, fmt.Errorf("%s: %s: %w", name, title, fault))
		}
		fmt.Println(title)
	}
}

func isComment(document []byte) bool {
	for _, line := range strings.Split(string(document), "\n") {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return false
		}
	}
	return true
}

// judge returns what Kubernetes' validation says of an object. An object of another kind is only decoded.
func judge(scheme *runtime.Scheme, object runtime.Object) field.ErrorList {
	if named, ok := object.(metav1.Object); ok && named.GetNamespace() == "" {
		named.SetNamespace("default")
	}
	convert := func(into any) {
		if err := scheme.Convert(object, into, nil); err != nil {
			panic(err)
		}
	}
	switch object.(type) {
	case *appsv1.StatefulSet:
		into := &apps.StatefulSet{}
		convert(into)
		return appsvalidation.ValidateStatefulSet(into, corevalidation.PodValidationOptions{})
	case *corev1.Service:
		into := &core.Service{}
		convert(into)
		if len(into.Spec.ClusterIPs) == 0 && into.Spec.ClusterIP != "" {
			into.Spec.ClusterIPs = []string{into.Spec.ClusterIP} // as the API server does
		}
		return corevalidation.ValidateServiceCreate(into)
	case *corev1.ConfigMap:
		into := &core.ConfigMap{}
		convert(into)
		return corevalidation.ValidateConfigMap(into)
	case *policyv1.PodDisruptionBudget:
		into := &policy.PodDisruptionBudget{}
		convert(into)
		return policyvalidation.ValidatePodDisruptionBudget(into, policyvalidation.PodDisruptionBudgetValidationOptions{})
	case *networkingv1.NetworkPolicy:
		into := &networking.NetworkPolicy{}
		convert(into)
		return networkingvalidation.ValidateNetworkPolicy(into, networkingvalidation.NetworkPolicyValidationOptions{})
	}
	return nil
}
