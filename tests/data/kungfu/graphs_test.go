// Prints the graphs of KungFu's strategies; README.md beside this file says how. It is a test of KungFu's package
// `session` because what it calls is not exported.
package session

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	kb "github.com/lsds/KungFu/srcs/go/kungfu/base"
	"github.com/lsds/KungFu/srcs/go/plan"
	"github.com/lsds/KungFu/srcs/go/plan/graph"
)

func edges(g *graph.Graph) []string {
	found := []string{}
	for i, node := range g.Nodes {
		for _, j := range node.Nexts {
			found = append(found, fmt.Sprintf("%d:%d", i, j))
		}
	}
	return found
}

// TestPrintGraphs writes a line for each strategy and placement of 2 to 16 peers: `hosts` numbers the host of each
// peer, filled in order with so many slots each; `graphs` has pairs of a reduce and a broadcast graph.
func TestPrintGraphs(t *testing.T) {
	strategies := []kb.Strategy{kb.Star, kb.Tree, kb.BinaryTreeStar, kb.Clique, kb.Ring}
	out, err := os.Create(os.Getenv("GRAPHS"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	seen := map[string]bool{}
	for np := 2; np <= 16; np++ {
		for _, slots := range []int{1, 2, 3, 4, 8, 16} {
			var list plan.HostList
			for i := 0; i*slots < np; i++ {
				address := uint32(0x0a000001 + i)
				list = append(list, plan.HostSpec{IPv4: address, Slots: slots, PublicAddr: fmt.Sprintf("10.0.0.%d", i+1)})
			}
			peers := list.MustGenPeerList(np, plan.PortRange{Begin: 10000, End: 11000})
			hosts := []int{}
			for _, peer := range peers {
				hosts = append(hosts, int(peer.IPv4-0x0a000001))
			}
			for _, strategy := range strategies {
				graphs := [][2][]string{}
				for _, one := range genGlobalStrategyList(peers, strategy) {
					graphs = append(graphs, [2][]string{edges(one.reduceGraph), edges(one.bcastGraph)})
				}
				line, err := json.Marshal(map[string]interface{}{"strategy": strategy.String(), "hosts": hosts, "graphs": graphs})
				if err != nil {
					t.Fatal(err)
				}
				// Star, clique and ring do not look at hosts: one placement of each size is enough.
				key := string(line)
				if strategy == kb.Star || strategy == kb.Clique || strategy == kb.Ring {
					key = fmt.Sprint(strategy, np)
				}
				if !seen[key] {
					seen[key] = true
					fmt.Fprintln(out, string(line))
				}
			}
		}
	}
}
