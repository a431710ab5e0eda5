package main

import (
	"cmp"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// A use is an edge of the graph: the unit from uses a name that the unit to declares.
type use struct{ from, to string }

// A graph holds the units of a module and the names that each use stands for.
type graph struct {
	units []string
	uses  map[use]map[string]bool
}

// graph returns the units of m and their uses.
func (m *module) graph() *graph {
	g := &graph{uses: make(map[use]map[string]bool)}
	units := make(map[string]bool)
	for _, p := range m.packages {
		for _, f := range p.files {
			units[m.unit(m.set.Position(f.Pos()).Filename)] = true
		}
		for id, o := range p.uses {
			if o.Pkg() == nil || !o.Pos().IsValid() {
				continue // a name of the language, such as append
			}
			u := use{m.unit(m.set.Position(id.Pos()).Filename),
				m.unit(m.set.Position(o.Pos()).Filename)}
			if u.from == u.to || u.to == "" {
				continue
			}
			if g.uses[u] == nil {
				g.uses[u] = make(map[string]bool)
			}
			g.uses[u][spelled(o)] = true
		}
	}
	g.units = slices.Sorted(maps.Keys(units))
	return g
}

// spelled returns the name of o, with a dot in front if o is a method or a field.
func spelled(o types.Object) string {
	if o.Parent() == o.Pkg().Scope() {
		return o.Name()
	}
	return "." + o.Name()
}

// sorted returns the uses in alphabetical order.
func (g *graph) sorted() []use {
	return slices.SortedFunc(maps.Keys(g.uses), func(a, b use) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
}

// names returns the names that u stands for.
func (g *graph) names(u use) []string { return slices.Sorted(maps.Keys(g.uses[u])) }

// groups returns the strongly connected components (Tarjan, 1972). Each component follows the
// components that it uses.
func (g *graph) groups() [][]string {
	to := make(map[string][]string)
	for _, u := range g.sorted() {
		to[u.from] = append(to[u.from], u.to)
	}
	var all [][]string
	var stack []string
	number, low, open := make(map[string]int), make(map[string]int), make(map[string]bool)
	var visit func(string)
	visit = func(v string) {
		number[v] = len(number) + 1
		low[v] = number[v]
		stack, open[v] = append(stack, v), true
		for _, w := range to[v] {
			if number[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if open[w] {
				low[v] = min(low[v], number[w])
			}
		}
		if low[v] < number[v] {
			return
		}
		i := slices.Index(stack, v)
		group := slices.Clone(stack[i:])
		stack = stack[:i]
		for _, w := range group {
			open[w] = false
		}
		slices.Sort(group)
		all = append(all, group)
	}
	for _, u := range g.units {
		if number[u] == 0 {
			visit(u)
		}
	}
	return all
}

// cycles returns the groups of units that use each other.
func (g *graph) cycles() [][]string {
	return slices.DeleteFunc(g.groups(), func(c []string) bool { return len(c) == 1 })
}

// layers returns the units of each layer, the lowest first. A unit is one layer above the highest
// unit that it uses. The units of a cycle share a layer.
func (g *graph) layers() [][]string {
	var all [][]string
	layer := make(map[string]int)
	for _, group := range g.groups() {
		at := 0
		for u := range g.uses {
			if slices.Contains(group, u.from) && !slices.Contains(group, u.to) {
				at = max(at, layer[u.to]+1)
			}
		}
		for _, u := range group {
			layer[u] = at
		}
		for len(all) <= at {
			all = append(all, nil)
		}
		all[at] = append(all[at], strings.Join(group, "+"))
	}
	return all
}
