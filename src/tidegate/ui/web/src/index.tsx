import { Pipelines } from "./Pipelines";
import { Ranges } from "./Ranges";
import { Run } from "./Run";
import { addStyle } from "./style";

// The loader of Airflow's UI takes the function of the entry's name; a script that it has run before is not run again.
addStyle();
Object.assign(globalThis, { Tidegate: Pipelines, "Tidegate ranges": Ranges, "Tidegate run": Run });
