package main

import (
	"cmp"
	"go/types"
	"maps"
	"slices"
	"strings"
)

// An arrow goes from a room to one that declares what it uses.
type arrow struct{ from, to string }

// A house is rooms and the names that their arrows stand for.
type house struct {
	rooms  []string
	arrows map[arrow]map[string]bool
}

// house returns the rooms of m and their arrows.
func (m *module) house() *house {
	h := &house{arrows: make(map[arrow]map[string]bool)}
	rooms := make(map[string]bool)
	for _, p := range m.packages {
		for _, f := range p.files {
			rooms[m.room(m.set.Position(f.Pos()).Filename)] = true
		}
		for id, o := range p.uses {
			if o.Pkg() == nil || !o.Pos().IsValid() {
				continue // of the language, such as append
			}
			a := arrow{m.room(m.set.Position(id.Pos()).Filename),
				m.room(m.set.Position(o.Pos()).Filename)}
			if a.from == a.to || a.to == "" {
				continue
			}
			if h.arrows[a] == nil {
				h.arrows[a] = make(map[string]bool)
			}
			h.arrows[a][spelt(o)] = true
		}
	}
	h.rooms = slices.Sorted(maps.Keys(rooms))
	return h
}

// spelt returns the name of o, with a dot if it is a method or a field.
func spelt(o types.Object) string {
	if o.Parent() == o.Pkg().Scope() {
		return o.Name()
	}
	return "." + o.Name()
}

// sorted returns the arrows in order.
func (h *house) sorted() []arrow {
	return slices.SortedFunc(maps.Keys(h.arrows), func(a, b arrow) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
}

// names returns the names that make an arrow.
func (h *house) names(a arrow) []string { return slices.Sorted(maps.Keys(h.arrows[a])) }

// model returns the model that a room belongs to; empty for other rooms.
func model(room string) string {
	for _, m := range []string{"ctm", "glm", "gp", "split_objective"} {
		if room == m+".go" || strings.HasPrefix(room, m+"_") {
			return m
		}
	}
	return ""
}

// between returns the arrows from one model to another.
func (h *house) between() []arrow {
	return slices.DeleteFunc(h.sorted(), func(a arrow) bool {
		return model(a.from) == "" || model(a.to) == "" || model(a.from) == model(a.to)
	})
}

// groups returns the rooms in groups that can reach each other (Tarjan, 1972), each group after
// those that it uses.
func (h *house) groups() [][]string {
	uses := make(map[string][]string)
	for _, a := range h.sorted() {
		uses[a.from] = append(uses[a.from], a.to)
	}
	var all [][]string
	var stack []string
	number, low, open := make(map[string]int), make(map[string]int), make(map[string]bool)
	var visit func(string)
	visit = func(v string) {
		number[v] = len(number) + 1
		low[v] = number[v]
		stack, open[v] = append(stack, v), true
		for _, w := range uses[v] {
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
	for _, r := range h.rooms {
		if number[r] == 0 {
			visit(r)
		}
	}
	return all
}

// circles returns the groups of more than one room.
func (h *house) circles() [][]string {
	return slices.DeleteFunc(h.groups(), func(g []string) bool { return len(g) == 1 })
}

// floors returns the rooms of each floor, from the ground.
func (h *house) floors() [][]string {
	var all [][]string
	floor := make(map[string]int)
	for _, group := range h.groups() {
		at := 0
		for a := range h.arrows {
			if slices.Contains(group, a.from) && !slices.Contains(group, a.to) {
				at = max(at, floor[a.to]+1)
			}
		}
		for _, r := range group {
			floor[r] = at
		}
		for len(all) <= at {
			all = append(all, nil)
		}
		all[at] = append(all[at], strings.Join(group, "+"))
	}
	return all
}

// A count is one of the numbers that the test of this package watches.
type count struct {
	what string
	n    int
}

// counts returns what is counted.
func (m *module) counts() []count {
	h := m.house()
	files, lines := m.lines()
	tests, _ := m.tests() // no error: the pattern is one
	typeNames, names, interfaceMethods := m.exported()
	notErrors := 0
	for a := range h.arrows {
		if a.to != "errors.go" {
			notErrors++
		}
	}
	return []count{
		{"lines in the root", lines},
		{"files in the root", files},
		{"files in the root, tests included", files + tests},
		{"rooms", len(h.rooms)},
		{"arrows", len(h.arrows)},
		{"arrows, those to errors.go left out", notErrors},
		{"floors", len(h.floors())},
		{"circles", len(h.circles())},
		{"arrows from model to model", len(h.between())},
		{"assertions to unnamed interfaces", len(m.unnamed())},
		{"exported types", typeNames},
		{"exported names", names},
		{"methods of exported interfaces", interfaceMethods},
	}
}
