"""RLlib 1.x's paths and names, in one place: what stands where it stood, and what there is instead of the rest.

`paths/<package>.ini` are the tables, one for each top-level package; `paths/rlframe.ini` has what stood beside the
packages. A section is a module of RLlib's under rlframe's name, a row one or several of its names:

    [rlframe.agents.agent]
    get_agent_class = rlframe.agents.registry     is found there; module:attribute where it has another name
    registry = rlframe.agents.registry:           is that module
    build_agent, make_agent = There are ...       are answered: an ImportError says the sentence

    [rlframe.utils.tf_ops]
    * = rlframe.utils.tf_utils                    all names of that module, under an older path

    [rlframe.agents.cql]
    * = @CQL                                      the module and all below it are answered

A sentence has a space in it, says what is not there, and what to use instead. `@CQL` is the sentence that
`rlframe.agents.registry` has on an algorithm that is not built.

A module that is in a table and no file need not be written: importing it makes one (`finder.OldPath`). A module that
is a file, and lacks names that RLlib's had, needs no line of code either: a name that it does not define itself is
looked up in the tables (`finder.Room`). What type checkers and editors see is the files', so misspelt names are still
found; paths that programs import often are files (`rlframe.policy.sample_batch`) for their sake.

Nothing is read before a name is missing, and a target's module is imported when its name is asked for. What exists for
the sake of RLlib's names alone, and that nothing in the rooms calls, is code of this package.
"""
