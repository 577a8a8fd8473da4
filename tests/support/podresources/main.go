// The kubelet's podresources service for tests: the published service of k8s.io/kubelet over a Unix socket, whose answers
// are read of a file at each call. `podresources SOCKET FILE`; the file is JSON, in the words of the messages' own fields:
// {"list": ListPodResourcesResponse, "allocatable": AllocatableResourcesResponse, "refuse": "why"}.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

type said struct {
	List        json.RawMessage `json:"list"`
	Allocatable json.RawMessage `json:"allocatable"`
	Refuse      string          `json:"refuse"`
}

type service struct {
	podresources.UnimplementedPodResourcesListerServer
	path string
}

func (s *service) read() (*said, error) {
	text, err := os.ReadFile(s.path)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	told := &said{}
	if err := json.Unmarshal(text, told); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	if told.Refuse != "" { // as kubelets do that were asked too often
		return nil, status.Error(codes.ResourceExhausted, told.Refuse)
	}
	return told, nil
}

func (s *service) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	told, err := s.read()
	answer := &podresources.ListPodResourcesResponse{}
	if err == nil && told.List != nil {
		err = protojson.Unmarshal(told.List, answer)
	}
	return answer, err
}

func (s *service) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	told, err := s.read()
	answer := &podresources.AllocatableResourcesResponse{}
	if err == nil && told.Allocatable != nil {
		err = protojson.Unmarshal(told.Allocatable, answer)
	}
	return answer, err
}

func (s *service) Get(ctx context.Context, asked *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	all, err := s.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, pod := range all.PodResources {
		if pod.Name == asked.PodName && pod.Namespace == asked.PodNamespace {
			return &podresources.GetPodResourcesResponse{PodResources: pod}, nil
		}
	}
	return nil, status.Errorf(codes.Unknown, "pod %s in namespace %s not found", asked.PodName, asked.PodNamespace)
}

func main() {
	socket, err := net.Listen("unix", os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, &service{path: os.Args[2]})
	if err := server.Serve(socket); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
